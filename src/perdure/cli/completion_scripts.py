"""Completion for bash, zsh and fish: scripts written from the commands themselves.

A script knows every command, option and fixed value, so that completing starts no Python and opens no store. All three
do the same: walk the words before the cursor, skip the values of options, and so learn which command is being typed.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from perdure.cli.helptext import is_argument, value_name
from perdure.model.run import STATUSES

VALUES: dict[tuple[str, str], tuple[str, ...]] = {
    ("threads", "--order"): ("active", "created"),
    ("runs", "--status"): STATUSES,
    ("runs", "--order"): ("desc", "asc"),
    ("log", "--view"): ("raw", "external", "history"),
    ("delete", "--strategy"): ("detach", "cascade", "reject"),
    ("completion", "SHELL"): ("bash", "zsh", "fish"),
}
"""The fixed values of options and arguments, by command."""
_FILES = "files=1"


class Option(NamedTuple):
    """An option as a shell needs it: its names, what it means, the name of its value (empty: a flag), its values."""

    names: tuple[str, ...]
    meaning: str
    value: str
    values: tuple[str, ...]


class Described(NamedTuple):
    """A command: the words that name it, what it means, its sub-commands and options, and its argument's values."""

    path: str
    meaning: str
    subcommands: tuple[Described, ...]
    options: tuple[Option, ...]
    values: tuple[str, ...]
    takes_file: bool


def described(command: Any, path: str = "") -> Described:
    """A command and everything below it."""
    subcommands = getattr(command, "commands", {})
    options = [_option(each, path) for each in command.params if not is_argument(each) and not each.hidden]
    arguments = [str(each.metavar) for each in command.params if is_argument(each)]
    return Described(
        path,
        " ".join(str(command.help or "").split("\n\n")[0].split()),
        tuple(described(each, f"{path} {name}".strip()) for name, each in subcommands.items()),
        (*options, Option(("-h", "--help"), "Show this message and exit.", "", ())),
        tuple(value for name in arguments for value in VALUES.get((path, name), ())),
        "FILE" in arguments,
    )


def _option(option: Any, path: str) -> Option:
    names = tuple(sorted(option.opts, key=len))
    values = VALUES.get((path, names[-1]), ())
    return Option(names, str(option.help or ""), value_name(option), values)


def _every(command: Described) -> Iterator[Described]:
    yield command
    for each in command.subcommands:
        yield from _every(each)


def _valued(root: Described) -> list[str]:
    """The names of all options that take a value."""
    return sorted({name for each in _every(root) for option in each.options if option.value for name in option.names})


def _name(command: Described) -> str:
    return command.path.rpartition(" ")[2]


def _paths(root: Described) -> list[str]:
    return [each.path for each in _every(root) if each.path]


def _alternatives(words: list[str]) -> str:
    """Words as a pattern of a `case` of bash and zsh."""
    return "|".join(shlex.quote(word) for word in words)


_WALK = """\
        if [[ -n $skip ]]; then skip=""; continue; fi
        case "${{chosen:+$chosen }}$word" in
            {paths}) chosen="${{chosen:+$chosen }}$word" ;;
        esac
        case "$word" in
            {valued}) skip=1 ;;
        esac
    done
    if [[ -n $skip ]]; then
        case "$chosen $previous" in
{values}
        esac
    elif [[ $current == -* ]]; then
        case "$chosen" in
{options}
        esac
    else
        case "$chosen" in
{arguments}
        esac
    fi
"""
"""What bash and zsh share: the body of the loop over the words, each as `$word`, and what can follow them."""

_BASH = """\
# Completion of perdure for bash: source <(perdure completion bash)
_perdure() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
    local chosen="" skip="" files="" words="" index word
    COMPREPLY=()
    for ((index = 1; index < COMP_CWORD; index++)); do
        word="${{COMP_WORDS[index]}}"
{walk}    if [[ -n $files ]]; then
        compopt -o filenames 2>/dev/null
        while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -f -- "$current")
    else
        while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -W "$words" -- "$current")
    fi
}}
complete -F _perdure perdure
"""


def bash(root: Described) -> str:
    """A script for bash 3.2 or newer."""
    return _filled(_BASH, root, lambda words: f"words={shlex.quote(' '.join(words))}", _option_names, _argument_words)


def _filled(
    template: str,
    root: Described,
    assign: Callable[[tuple[str, ...]], str],
    options: Callable[[Described], tuple[str, ...]],
    arguments: Callable[[Described], tuple[str, ...]],
) -> str:
    """The template of bash or zsh with a branch for each command, and for each option that has fixed values.

    `assign` writes the statement that offers words; `options` and `arguments` are the words of a command.
    """
    commands = list(_every(root))
    of_options = [
        (_alternatives([f"{each.path} {name}" for name in option.names]), option)
        for each in commands
        for option in each.options
        if option.values or option.value == "FILE"
    ]
    walk = _WALK.format(
        paths=_alternatives(_paths(root)),
        valued=_alternatives(_valued(root)),
        values=_branches([(names, assign(option.values) if option.values else _FILES) for names, option in of_options]),
        options=_branches([(shlex.quote(each.path), assign(options(each))) for each in commands]),
        arguments=_branches(
            [(shlex.quote(each.path), _FILES if each.takes_file else assign(arguments(each))) for each in commands]
        ),
    )
    return template.format(walk=walk)


def _branches(branches: list[tuple[str, str]]) -> str:
    return "\n".join(f"            {pattern}) {action} ;;" for pattern, action in branches)


def _option_names(command: Described) -> tuple[str, ...]:
    return tuple(name for option in command.options for name in option.names)


def _argument_words(command: Described) -> tuple[str, ...]:
    return (*(_name(each) for each in command.subcommands), *command.values)


_ZSH = """\
#compdef perdure
# Completion of perdure for zsh: source <(perdure completion zsh), after compinit
_perdure() {{
    local current="$PREFIX" previous="${{words[CURRENT-1]}}"
    local chosen="" skip="" files="" word
    local -a choices
    for word in "${{(@)words[2,CURRENT-1]}}"; do
{walk}    if [[ -n $files ]]; then _files; else _describe perdure choices; fi
}}
if [[ $funcstack[1] == _perdure ]]; then _perdure "$@"; else compdef _perdure perdure; fi
"""


def zsh(root: Described) -> str:
    """A script for zsh, to be sourced or put into a folder of `fpath`."""
    return _filled(_ZSH, root, lambda words: f"choices=({' '.join(words)})", _zsh_options, _zsh_arguments)


def _zsh_options(command: Described) -> tuple[str, ...]:
    return tuple(shlex.quote(f"{name}:{option.meaning}") for option in command.options for name in option.names)


def _zsh_arguments(command: Described) -> tuple[str, ...]:
    return (*(shlex.quote(f"{_name(each)}:{each.meaning}") for each in command.subcommands), *command.values)


_FISH = """\
# Completion of perdure for fish: perdure completion fish | source
function __perdure_is
    set -l chosen
    set -l skip
    for word in (commandline -opc)[2..-1]
        if test -n "$skip"
            set skip
            continue
        end
        switch (string join -- ' ' $chosen $word)
            case {paths}
                set -a chosen $word
        end
        switch $word
            case {valued}
                set skip 1
        end
    end
    test "$chosen" = "$argv[1]"
end
complete -c perdure -f
{lines}
"""


def fish(root: Described) -> str:
    """A script for fish 3 or newer."""
    lines = []
    for command in _every(root):
        condition = f"complete -c perdure -n {_fish_quoted(f'__perdure_is {_fish_quoted(command.path)}')}"
        lines += [f"{condition} -a {_name(each)} -d {_fish_quoted(each.meaning)}" for each in command.subcommands]
        if command.values:
            lines.append(f"{condition} -a {_fish_quoted(' '.join(command.values))}")
        if command.takes_file:
            lines.append(f"{condition} -F")
        lines += [f"{condition} {_fish_option(option)}" for option in command.options]
    return _FISH.format(
        paths=" ".join(_fish_quoted(path) for path in _paths(root)),
        valued=" ".join(_valued(root)),
        lines="\n".join(lines),
    )


def _fish_option(option: Option) -> str:
    names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
    if option.values:
        names.append(f"-x -a {_fish_quoted(' '.join(option.values))}")
    elif option.value:
        names.append("-r -F" if option.value == "FILE" else "-x")
    return " ".join([*names, "-d", _fish_quoted(option.meaning)])


def _fish_quoted(text: str) -> str:
    """Fish has its own rules: only a backslash and a quote mean something inside single quotes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


SCRIPTS: dict[str, Callable[[Described], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
