"""Checks of single arguments: ids, scopes, branch names, titles, counts, flags, limits.

Ids are 1 to 256 bytes of UTF-8 without control characters, and not blank; they are compared as bytes and never changed,
except lineage ids (`resource_id`, `parent_thread_id`), which are trimmed, blank meaning none.
"""

from __future__ import annotations

import re
from typing import Any

from perdure import limits
from perdure.errors import InvalidError, short_repr

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_WORD = re.compile(r"[a-z][a-z0-9_.-]{0,63}")


def check_id(value: Any, what: str, *, most: int = limits.ID_BYTES) -> str:
    """The id itself; raises `InvalidError` that names the rule it breaks."""
    if type(value) is not str:
        raise InvalidError(f"{what} must be text, not {short_repr(value)}")
    if value.isascii() and value.isprintable() and len(value) <= most and not value.isspace() and value:
        return value
    if not value.strip():
        raise InvalidError(f"{what} must not be {'blank' if value else 'empty'}")
    if _CONTROL.search(value):
        raise InvalidError(f"{what} must not contain control characters: {short_repr(value)}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidError(f"{what} holds a lone surrogate, which UTF-8 cannot carry") from None
    if size > most:
        raise InvalidError(f"{what} is {size} bytes long, the limit is {most}")
    return value


RESERVED = "~"
"""What the names of scopes begin with that only the stores themselves write to."""


def check_scope(value: Any) -> str:
    """A tenant's name."""
    return check_id(value, "scope", most=limits.SCOPE_BYTES)


def check_own_scope(value: Any, *, read_only: bool = False) -> str:
    """A tenant's name that a caller may choose. Reserved ones are for the stores themselves; what an older version has
    written to one may still be read."""
    scope = check_scope(value)
    if scope.startswith(RESERVED) and not read_only:
        raise InvalidError(
            f"the scope {short_repr(scope)} is reserved: it begins with {RESERVED}",
            hint="choose another name; data that has been in such a scope can be read with read_only=True, and moved"
            " with `perdure export` and `perdure import`",
        )
    return scope


def lineage(value: Any, what: str) -> str | None:
    """A lineage id: trimmed, and None when blank."""
    if value is None:
        return None
    if type(value) is not str:
        raise InvalidError(f"{what} must be text, not {short_repr(value)}")
    trimmed = value.strip()
    return check_id(trimmed, what) if trimmed else None


def check_owner(value: Any) -> str | None:
    """The resource that something must belong to. Blank is refused: it would admit what belongs to anybody.

    So is space around an id, which is removed where a thread is created: the user "ann " must not be taken for "ann".
    """
    resource = lineage(value, "resource_id")
    if resource is None and value is not None:
        raise InvalidError("resource_id is blank", hint="leave it out to admit a thread of any resource")
    if resource != value:
        raise InvalidError(f"resource_id {short_repr(value)} begins or ends with space", hint="pass the id itself")
    return resource


def check_title(value: Any) -> str | None:
    """A title: any text within the limit."""
    if value is None:
        return None
    if type(value) is not str or len(value.encode("utf-8", "replace")) > limits.TITLE_BYTES:
        raise InvalidError(f"title must be text of at most {limits.TITLE_BYTES} bytes")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidError("title holds a lone surrogate, which UTF-8 cannot carry") from None
    if "\x00" in value:
        raise InvalidError("title must not contain NUL")
    return value


def check_word(value: Any, what: str) -> str:
    """A role, status or mode: a lower-case word. Unknown words are carried."""
    if type(value) is not str or not _WORD.fullmatch(value):
        raise InvalidError(f"{what} must be a lower-case word, not {short_repr(value)}")
    return value


def check_count(value: Any, what: str, *, least: int = 0) -> int:
    """A whole number within the limits that every engine keeps exactly."""
    if type(value) is not int or not least <= value <= limits.INTEGER_MAX:
        too_large = type(value) is int and value > limits.INTEGER_MAX
        bounds = f"from {least} to {limits.INTEGER_MAX}" if too_large else f"of at least {least}"
        raise InvalidError(f"{what} must be an integer {bounds}, not {short_repr(value)}")
    return value


def check_rev(value: Any, what: str) -> int:
    """A rev as a record carried it; 0 where it means absence."""
    if type(value) is not int or not 0 <= value < 2**53:
        raise InvalidError(f"{what} is the rev of a record, not {short_repr(value)}")
    return value


def check_branch_name(value: Any) -> str:
    """The name of a branch. Digits alone mean the branch of that number."""
    name = check_id(value, "branch name", most=limits.NAME_BYTES)
    if name.isdigit():
        raise InvalidError(f"a branch cannot be called {name!r}: a number means the branch of that number")
    return name


def check_limit(value: Any) -> int:
    """A page size: 1 to 200."""
    if type(value) is not int or not 1 <= value <= limits.PAGE_MAX:
        raise InvalidError(f"limit must be between 1 and {limits.PAGE_MAX}, not {short_repr(value)}")
    return value


def check_flag(value: Any, what: str) -> bool:
    """True or False, and nothing that merely counts as one of them."""
    if type(value) is not bool:
        raise InvalidError(f"{what} must be True or False, not {short_repr(value)}")
    return value


def check_choice(value: Any, what: str, *known: str) -> str:
    """One of the known words."""
    if type(value) is not str or value not in known:
        raise InvalidError(f"must be one of {', '.join(known)}, not {short_repr(value)}", path=what)
    return value
