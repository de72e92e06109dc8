"""SQLite files of a few dozen pages that hold thousands of millions of rows, for tests of what opening them costs.

A page of a b-tree lists pointers to its cells, and SQLite does not mind when they are all the same. So one cell is
repeated `_POINTERS` times on a leaf, and one child as often on each page above it:

    root   → upper, upper, …   (300 times)
    upper  → middle, middle, … (300 times)
    middle → leaf, leaf, …     (300 times)
    leaf   → cell, cell, …     (300 times): 8,100 million rows in four pages
"""

from __future__ import annotations

import sqlite3
import struct
from contextlib import closing
from pathlib import Path

from perdure.engines.sqlite.connections.connect import PAGE_SIZE

_PAGE = PAGE_SIZE
_FILE_HEADER = 100
# SQLite rejects a page of n bytes with more than (n - 8) / 6 cells.
_POINTERS = 300
_LEVELS = 4
# The kinds of leaves: of a table with rowids, and of an index or a table without them. Interior pages have 8 less.
_TABLE, _INDEX = 0x0D, 0x0A


def bomb_schema(path: Path) -> None:
    """Repeat a row of `sqlite_master`: that of an automatic index, which SQLite accepts any number of times."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bomb (a PRIMARY KEY)")
        connection.commit()
        _leave_one_file(connection)
    pages = bytearray(path.read_bytes())
    _plant(pages, 1, _TABLE, _schema_cell(pages, b"sqlite_autoindex_bomb_1"))
    path.write_bytes(pages)


def bomb_table(path: Path, name: str) -> None:
    """Repeat the first row of a table without rowids; its rows must fit on one page."""
    with closing(sqlite3.connect(path)) as connection:
        _leave_one_file(connection)
        (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()
    pages = bytearray(path.read_bytes())
    page = pages[(root - 1) * _PAGE : root * _PAGE]
    if page[0] != _INDEX or not _count(page):
        raise ValueError(f"{name} has no rows, or more than one page of them")
    _plant(pages, root, _INDEX, _cell(page, 0, _INDEX))
    path.write_bytes(pages)


def _leave_one_file(connection: sqlite3.Connection) -> None:
    """Move everything from the log into the database file."""
    connection.execute("PRAGMA journal_mode=DELETE")


def _plant(pages: bytearray, root: int, kind: int, cell: bytes) -> None:
    """Replace the page `root` by the top of a bomb, append the rest, and write the new length into the file header."""
    pages += _page(kind, cell)
    for _ in range(_LEVELS - 2):
        pages += _interior_page(kind, cell, len(pages) // _PAGE)
    last = len(pages) // _PAGE
    offset = _FILE_HEADER if root == 1 else 0
    start = (root - 1) * _PAGE
    pages[start + offset : start + _PAGE] = _interior_page(kind, cell, last, offset)[offset:]
    pages[28:32] = struct.pack(">I", last)
    pages[92:96] = pages[24:28]  # SQLite believes the length only if these two counters agree


def _interior_page(kind: int, cell: bytes, child: int, offset: int = 0) -> bytes:
    number = struct.pack(">I", child)
    return _page(kind - 8, number + (b"\x01" if kind == _TABLE else cell), number, offset)


def _page(kind: int, cell: bytes, right_child: bytes = b"", offset: int = 0) -> bytes:
    at = _PAGE - len(cell)
    header = struct.pack(">BHHHB", kind, 0, _POINTERS, at, 0) + right_child
    pointers = struct.pack(">H", at) * _POINTERS
    return (bytes(offset) + header + pointers).ljust(at, b"\0") + cell


def _schema_cell(pages: bytearray, name: bytes) -> bytes:
    """The cell of `sqlite_master` that holds this name."""
    for start in range(0, len(pages), _PAGE):
        page = pages[start : start + _PAGE]
        offset = _FILE_HEADER if start == 0 else 0
        if page[offset] == _TABLE:
            for cell in (_cell(page, number, _TABLE, offset) for number in range(_count(page, offset))):
                if name in cell:
                    return cell
    raise ValueError(f"no row of the schema holds {name!r}")


def _count(page: bytearray, offset: int = 0) -> int:
    (count,) = struct.unpack_from(">H", page, offset + 3)
    return int(count)


def _cell(page: bytearray, number: int, kind: int, offset: int = 0) -> bytes:
    (at,) = struct.unpack_from(">H", page, offset + 8 + 2 * number)
    size, width = _varint(page, at)
    if kind == _TABLE:
        width += _varint(page, at + width)[1]  # the rowid
    return bytes(page[at : at + width + size])


def _varint(page: bytearray, at: int) -> tuple[int, int]:
    """A number and its width in bytes; rows here are short, so it has one or two."""
    first = page[at]
    return (first, 1) if first < 0x80 else ((first & 0x7F) << 7 | page[at + 1], 2)
