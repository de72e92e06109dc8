"""A read-only store never serves a state of the file that has passed."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import perdure.sync
from perdure import Message

WRITE = """
import sys
import perdure.sync
from perdure import Message
with perdure.sync.open(sys.argv[1]) as store:
    store.commit("t", messages=[Message.user("2")])
"""


def test_a_connection_of_an_earlier_state_serves_nobody_afterwards(tmp_path: Path) -> None:
    """One reader is held inside a question while another process writes and a second reader notices it."""
    url = f"sqlite:///{tmp_path / 'a.db'}"
    with perdure.sync.open(url) as store:
        store.commit("t", messages=[Message.user("1")])
    asked, released = threading.Event(), threading.Event()

    def slow(connection: sqlite3.Connection) -> int:
        connection.execute("SELECT count(*) FROM messages").fetchone()
        asked.set()
        released.wait(60)
        return 1

    with perdure.sync.open(url, read_only=True) as store:
        assert store.threads.get("t").version == 1
        readers = store.engine._database.readers  # type: ignore[attr-defined]
        held = threading.Thread(target=lambda: readers.ask(slow))
        held.start()
        assert asked.wait(60)
        subprocess.run([sys.executable, "-c", WRITE, url], check=True, timeout=60)
        assert store.threads.get("t").version == 2
        released.set()
        held.join(60)
        for _ in range(3):
            assert store.threads.get("t").version == 2
            assert len(store.messages.history("t")) == 2
