"""The blocking face: the methods and signatures of the async one, usable from threads, refused where it would hurt."""

from __future__ import annotations

import asyncio
import inspect
import os
import pydoc
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import perdure
import perdure.sync
from perdure import Message, UnsupportedError
from perdure.stores.store import Store as AsyncStore
from perdure.sync.face import Face

ROOT = Path(__file__).resolve().parents[2]
STORES = ("threads", "messages", "branches", "pending", "runs", "state", "profiles")
URLS = ("memory://", "sqlite:///{path}")


@pytest.fixture(params=URLS, ids=("memory", "sqlite"))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.param).format(path=tmp_path / "store.db")


def public(cls: type) -> dict[str, inspect.Signature]:
    return {n: inspect.signature(f) for n, f in inspect.getmembers(cls, callable) if not n.startswith("_")}


@pytest.mark.parametrize("tool", ["make_handle", "make_sync"])
def test_faces_are_what_the_tool_would_write(tool: str) -> None:
    done = subprocess.run(
        [sys.executable, f"tools/{tool}.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", STORES)
def test_every_async_method_has_a_blocking_twin(name: str) -> None:
    async_methods = public(_async_class(name))
    sync_methods = public(getattr(perdure.sync, name.capitalize()))
    assert async_methods.keys() == sync_methods.keys()
    for method, signature in async_methods.items():
        assert list(signature.parameters) == list(sync_methods[method].parameters), method


def _async_class(name: str) -> type:
    module = __import__(f"perdure.stores.{name}", fromlist=[name])
    return getattr(module, name.capitalize())


def test_the_store_itself_has_the_same_methods() -> None:
    assert public(AsyncStore).keys() == public(perdure.sync.Store).keys()


@pytest.mark.parametrize("face", Face.__subclasses__(), ids=lambda face: face.__name__)
def test_help_shows_the_whole_docstring_of_the_async_method(face: type[Face[Any]]) -> None:
    twin = getattr(sys.modules[face.__module__.replace(".sync", "")], face.__name__)
    for name, member in vars(face).items():
        if not name.startswith("_"):
            assert vars(twin)[name].__doc__, name
            assert member.__doc__ == vars(twin)[name].__doc__, name


def test_help_of_a_commit_explains_every_option() -> None:
    text = pydoc.plain(pydoc.render_doc(perdure.sync.Store.commit))
    for option in ("messages", "expect_head", "fence", "run_state", "key"):
        assert f"- `{option}`: " in text


def test_many_threads_share_one_store(url: str) -> None:
    with perdure.sync.open(url) as store:
        store.threads.create("shared")

        def work(worker: int) -> list[int]:
            own = store.threads.create(f"own-{worker}").id
            seqs = []
            for i in range(20):
                seqs += store.commit("shared", messages=[Message.user(f"{worker}/{i}")]).seqs
                store.commit(own, messages=[Message.user(str(i))], expect=i)
            return seqs

        with ThreadPoolExecutor(8) as pool:
            seqs = [seq for found in pool.map(work, range(8)) for seq in found]
        assert sorted(seqs) == list(range(1, 161))
        assert [r.seq for r in store.messages.iter("shared")] == list(range(1, 161))
        assert all(len(store.messages.history(f"own-{w}")) == 20 for w in range(8))


def test_iterators_and_follow(url: str) -> None:
    with perdure.sync.open(url) as store:
        for i in range(3):
            store.commit("t", messages=[Message.user(str(i))])
        live = store.messages.follow("t", after_seq=1)
        assert [next(live).seq, next(live).seq] == [2, 3]
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(next, live)
            store.commit("t", messages=[Message.user("late")])
            assert waiting.result(timeout=30).text == "late"
        live.close()


def test_a_running_loop_is_refused(url: str) -> None:
    async def inside() -> None:
        perdure.sync.open(url)

    with pytest.raises(UnsupportedError, match="event loop"):
        asyncio.run(inside())


def test_a_forked_child_is_refused(url: str) -> None:
    with perdure.sync.open(url) as store:
        store.threads.create("t")
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                store.threads.get("t")
                answer = b"served"
            except UnsupportedError:
                answer = b"refused"
            except BaseException as error:  # noqa: BLE001 - the child reports whatever it meets
                answer = repr(error).encode()[:200]
            os.write(write, answer)
            os._exit(0)
        os.waitpid(child, 0)
        assert os.read(read, 300) == b"refused"
        os.close(read)
        os.close(write)
        assert store.threads.get("t").id == "t"
