"""One client between many threads, and on both sides of a fork: nobody gets another's reply."""

from __future__ import annotations

import os
import random
import threading
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import StartAgent
from fake_agent import FakeAgent, Peer, eventually

from rlsidecar import Client

THREADS = 64
CALLS = int(os.environ.get("RLSIDECAR_TEST_CALLS", "150"))


def mark(key: str) -> int:
    """A number that only this key gets; it is sent as the limit."""
    return zlib.crc32(key.encode())


def marking(peer: Peer) -> None:
    while True:
        msgid, _, params = peer.read()
        peer.reply(msgid, [True, mark(params[1]), 0, 0, 0, 0, 0])


def marking_late(peer: Peer) -> None:
    """As `marking`, with now and then a delay, so that replies overtake each other."""
    chance = random.Random(peer.number)
    while True:
        msgid, _, params = peer.read()
        if chance.random() < 0.05:
            time.sleep(chance.random() * 0.005)
        peer.reply(msgid, [True, mark(params[1]), 0, 0, 0, 0, 0])


def ask_many(client: Client, name: str, calls: int) -> None:
    for number in range(calls):
        key = f"{name}:{number}"
        decision = client.acquire("api", key)
        assert decision.limit == mark(key), key


def run_all(targets: list[Callable[[], None]]) -> None:
    """Run each in a thread; fail with the first failure."""
    failures: list[BaseException] = []

    def guarded(target: Callable[[], None]) -> None:
        try:
            target()
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=guarded, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in failures:
        raise failure


def in_child(work: Callable[[], Any]) -> int:
    """Fork; the child does the work and exits with 0 if nothing was raised. Returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    except BaseException as e:
        os.write(2, f"child: {e!r}\n".encode())
    finally:
        os._exit(status)


def exit_status(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_c25_threads(agent: StartAgent, path: Path) -> None:
    fake = agent(marking_late)
    with Client(path, timeout=20, on_unavailable="raise") as client:
        run_all([partial(ask_many, client, f"t{n}", CALLS) for n in range(THREADS)])
        assert len(client._pool._idle) <= THREADS
    assert len(fake.requests) == THREADS * CALLS
    assert len(fake.peers) <= THREADS


def test_c25_threads_with_timeouts(agent: StartAgent, path: Path) -> None:
    """With a budget that replies keep missing, those that do come are still one's own."""
    agent(marking_late)
    answered: list[str] = []

    def hurry(name: str) -> None:
        for number in range(100):
            key = f"{name}:{number}"
            decision = client.acquire("api", key, timeout=0.003)
            if not decision.degraded:
                assert decision.limit == mark(key)
                answered.append(key)

    with Client(path) as client:
        run_all([partial(hurry, f"t{n}") for n in range(8)])
    assert answered


def test_c15_both_sides_call_after_a_fork(agent: StartAgent, path: Path) -> None:
    fake = agent(marking)
    with Client(path, timeout=10, on_unavailable="raise") as client:
        ask_many(client, "before", 10)
        pid = in_child(lambda: ask_many(client, "child", 1000))
        ask_many(client, "parent", 1000)
        assert exit_status(pid) == 0
        ask_many(client, "after", 10)
    connections = {params[1].split(":")[0]: number for number, _, _, params in fake.requests}
    assert connections["before"] == connections["parent"] == connections["after"] == 0
    assert connections["child"] != 0
    assert len(fake.peers) == 2


def test_c15_a_preloaded_client_in_several_workers(agent: StartAgent, path: Path) -> None:
    fake = agent(marking)
    with Client(path, timeout=10, on_unavailable="raise") as client:
        ask_many(client, "master", 1)
        pids = [in_child(partial(ask_many, client, f"w{n}", 200)) for n in range(4)]
        assert [exit_status(pid) for pid in pids] == [0] * 4
        ask_many(client, "master", 1)
    assert len(fake.peers) == 5


def test_c15_the_child_holds_nothing_of_the_parent_open(agent: StartAgent, path: Path) -> None:
    """When the parent closes, the agent sees it, though a child lives; a call under way included."""
    ended: list[int] = []
    under_way = threading.Event()
    answer = threading.Event()

    def play(peer: Peer) -> None:
        try:
            while True:
                msgid, _, params = peer.read()
                if params[1] == "slow":
                    under_way.set()
                    answer.wait(5)
                peer.reply(msgid, [True, mark(params[1]), 0, 0, 0, 0, 0])
        finally:
            ended.append(peer.number)

    agent(play)
    client = Client(path, timeout=10, on_unavailable="raise")
    read_end, write_end = os.pipe()
    slow = threading.Thread(target=client.acquire, args=("api", "slow"))
    slow.start()
    assert under_way.wait(5)
    ask_many(client, "idle", 1)

    def live_until_told() -> None:
        os.close(write_end)
        os.read(read_end, 1)

    pid = in_child(live_until_told)
    answer.set()
    slow.join()
    client.close()
    try:
        eventually(lambda: sorted(ended) == [0, 1])
    finally:
        os.close(write_end)
        os.close(read_end)
        assert exit_status(pid) == 0


def test_c15_the_pid_is_checked_where_no_hook_ran(
    agent: StartAgent, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = agent(marking)
    with Client(path, timeout=5, on_unavailable="raise") as client:
        ask_many(client, "parent", 2)
        monkeypatch.setattr(os, "getpid", lambda: -1)
        ask_many(client, "child", 2)
    assert [number for number, *_ in fake.requests] == [0, 0, 1, 1]


def test_c15_fork_in_a_thread_while_others_call(path: Path) -> None:
    with FakeAgent(path, marking) as fake, Client(path, timeout=10, on_unavailable="raise") as client:

        def fork_some() -> None:
            for number in range(5):
                pid = in_child(partial(ask_many, client, f"c{number}", 50))
                assert exit_status(pid) == 0

        run_all([fork_some, *(partial(ask_many, client, f"p{n}", 300) for n in range(8))])
    assert len(fake.requests) == 5 * 50 + 8 * 300
