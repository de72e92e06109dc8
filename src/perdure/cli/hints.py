"""Commands as hints show them: somebody will paste them into a shell."""

from __future__ import annotations

import shlex


def command_line(command: str, *arguments: str) -> str:
    """`perdure COMMAND ARGUMENTS` with every argument one word for a shell, and none of them an option.

    >>> command_line("branch", "x; touch pwned")
    "perdure branch 'x; touch pwned'"
    """
    ends_options = ["--"] if any(argument.startswith("-") for argument in arguments) else []
    return shlex.join(["perdure", *command.split(), *ends_options, *arguments])
