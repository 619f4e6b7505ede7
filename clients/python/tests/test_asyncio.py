"""The asyncio client: many calls on one connection, and nobody gets another's answer."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgpack
import pytest
from conftest import StartAgent
from fake_agent import (
    ALLOWED,
    DENIED,
    FakeAgent,
    Peer,
    Script,
    answering,
    eventually,
    response,
    saying,
    silent,
)
from test_failures import NOT_THE_REPLY, open_descriptors
from test_threads_and_forks import exit_status, in_child, mark, marking, run_all
from test_wire import ERRORS

from rlsidecar import (
    AgentNotRunning,
    AgentTimeout,
    Limit,
    ProtocolError,
    RateLimited,
    RlsidecarError,
    Source,
    Unavailable,
    UnknownPolicy,
    _multiplexed,
)
from rlsidecar.asyncio import Client

Work = Callable[[], Coroutine[Any, Any, None]]


def run(work: Work) -> None:
    asyncio.run(work())


async def ask_many(client: Client, name: str, calls: int) -> None:
    for number in range(calls):
        key = f"{name}:{number}"
        assert (await client.acquire("api", key)).limit == mark(key), key


def reordering(peer: Peer) -> None:
    """Answers a few at a time, in another order, and in pieces."""
    chance = random.Random(peer.number)
    while True:
        batch = [peer.read()]
        while peer.pending() and len(batch) < 20:
            batch.append(peer.read())
        chance.shuffle(batch)
        data = b"".join(response(msgid, [True, mark(p[1]), 0, 0, 0, 0, 0]) for msgid, _, p in batch)
        cut = chance.randrange(len(data))
        peer.send(data[:cut])
        peer.send(data[cut:])


def test_c25_many_tasks_share_one_connection(agent: StartAgent, path: Path) -> None:
    fake = agent(reordering)

    async def work() -> None:
        async with Client(path, timeout=20, on_unavailable="raise") as client:
            await asyncio.gather(*(ask_many(client, f"t{n}", 100) for n in range(64)))

    run(work)
    assert len(fake.requests) == 6400
    assert len(fake.peers) == 1


def test_more_calls_than_one_connection_takes(agent: StartAgent, path: Path) -> None:
    held = threading.Event()

    def play(peer: Peer) -> None:
        held.wait(10)
        marking(peer)

    fake = agent(play)

    async def work() -> None:
        async with Client(path, timeout=20, on_unavailable="raise") as client:
            calls = [asyncio.create_task(ask_many(client, f"t{n}", 1)) for n in range(1200)]
            await asyncio.sleep(0.1)
            held.set()
            await asyncio.gather(*calls)

    run(work)
    assert len(fake.peers) == 3


def test_c16_a_cancelled_call_disturbs_nobody(agent: StartAgent, path: Path) -> None:
    """Cancelled after every number of steps of the loop that a call takes, and at random times."""
    fake = agent(reordering)

    async def work() -> None:
        async with Client(path, timeout=20, on_unavailable="raise") as client:
            others = [asyncio.create_task(ask_many(client, f"o{n}", 300)) for n in range(8)]
            for steps in [0, 1, 2, 3, 4, 5] * 50:
                task = asyncio.create_task(client.acquire("api", "cancelled"))
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            await asyncio.gather(*others)
            await ask_many(client, "after", 10)

    run(work)
    assert len(fake.peers) <= 5, "only one with many late replies is replaced"


def test_c16_cancelled_while_it_connects(path: Path) -> None:
    """The backlog is full: the call is waiting to try again."""
    before = open_descriptors()

    async def work() -> None:
        async with Client(path, timeout=20) as client:
            task = asyncio.create_task(client.acquire("api", "k"))
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    with full_backlog(path):
        run(work)
    assert open_descriptors() == before


@contextlib.contextmanager
def full_backlog(path: Path) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as listener, contextlib.ExitStack() as stack:
        listener.bind(str(path))
        listener.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                waiting = stack.enter_context(socket.socket(socket.AF_UNIX))
                waiting.setblocking(False)
                waiting.connect(str(path))
        yield


def test_c11_a_full_backlog_ends_at_the_budget(path: Path) -> None:
    async def work() -> None:
        async with Client(path, timeout=0.1, on_unavailable="raise") as client:
            began = time.monotonic()
            with pytest.raises(AgentTimeout):
                await client.acquire("api", "k")
            assert time.monotonic() - began >= 0.1

    with full_backlog(path):
        run(work)


def test_c16_two_loops_at_once(agent: StartAgent, path: Path) -> None:
    fake = agent(reordering)
    client = Client(path, timeout=20, on_unavailable="raise")

    async def work(name: str) -> None:
        async with client:
            await asyncio.gather(*(ask_many(client, f"{name}{n}", 100) for n in range(8)))

    run_all([lambda name=name: asyncio.run(work(name)) for name in "ab"])  # type: ignore[misc]
    assert len(fake.peers) == 2


def test_one_loop_after_another_leaves_nothing_open(agent: StartAgent, path: Path) -> None:
    """Without close, as a script that calls asyncio.run again and again."""
    agent(marking)
    client = Client(path, timeout=5, on_unavailable="raise")
    counts = []
    for number in range(5):
        asyncio.run(ask_many(client, str(number), 3))
        counts.append(open_descriptors())
    assert len(set(counts)) == 1
    asyncio.run(client.close())
    client.forget_closed_loops()


def test_c05_a_late_reply_is_nobody_elses(agent: StartAgent, path: Path) -> None:
    gave_up = threading.Event()

    def play(peer: Peer) -> None:
        while True:
            msgid, _, params = peer.read()
            if params[1] == "A":
                gave_up.wait(5)
            peer.reply(msgid, [True, mark(params[1]), 0, 0, 0, 0, 0])

    fake = agent(play)

    async def work() -> None:
        async with Client(path, timeout=0.1, on_unavailable="raise") as client:
            with pytest.raises(AgentTimeout):
                await client.acquire("api", "A")
            gave_up.set()
            assert (await client.acquire("api", "B", timeout=5)).limit == mark("B")

    run(work)
    assert len(fake.peers) == 1, "the connection is still good"


def test_a_connection_with_many_late_replies_is_replaced(agent: StartAgent, path: Path) -> None:
    fake = agent(silent)

    async def work() -> None:
        async with Client(path, timeout=0.02) as client:
            for _ in range(4):
                await asyncio.gather(*(client.acquire("api", "k") for _ in range(_multiplexed.MAX_LATE)))

    run(work)
    eventually(lambda: len(fake.peers) == 4)


TRAILING = {"two replies", "reply and another", "reply and half another"}


def misbehaving(what: str) -> Script:
    return saying(NOT_THE_REPLY[what])


@pytest.mark.parametrize("what", sorted(NOT_THE_REPLY.keys() - TRAILING))
def test_c06_not_the_reply_ends_the_connection(agent: StartAgent, path: Path, what: str) -> None:
    fake = agent(misbehaving(what))

    async def work() -> None:
        async with Client(path, timeout=2, on_unavailable="raise") as client:
            for _ in range(2):
                with pytest.raises(ProtocolError):
                    await client.acquire("api", "k")

    run(work)
    assert len(fake.peers) == 2


@pytest.mark.parametrize("what", ["two replies", "reply and another"])
def test_c06_what_follows_a_reply_ends_the_connection(agent: StartAgent, path: Path, what: str) -> None:
    fake = agent(misbehaving(what))

    async def work() -> None:
        async with Client(path, timeout=2, on_unavailable="raise") as client:
            assert await client.acquire("api", "k")
            assert await client.acquire("api", "k")

    run(work)
    assert len(fake.peers) == 2


def test_c06_half_a_message_is_nobodys_reply(agent: StartAgent, path: Path) -> None:
    """On a shared connection it may be one that is still coming; the next bytes tell."""
    fake = agent(misbehaving("reply and half another"))

    async def work() -> None:
        async with Client(path, timeout=0.2, on_unavailable="raise") as client:
            assert await client.acquire("api", "k")
            with pytest.raises(Unavailable):
                await client.acquire("api", "k")

    run(work)
    assert len(fake.requests) == 2


@pytest.mark.parametrize(("error", "kind"), ERRORS)
def test_error_codes(agent: StartAgent, path: Path, error: list[Any], kind: type[RlsidecarError]) -> None:
    agent(answering(None, error))

    async def work() -> None:
        async with Client(path, timeout=5, on_unavailable="raise") as client:
            with pytest.raises(RlsidecarError) as caught:
                await client.acquire("api", "k")
            assert type(caught.value) is kind

    run(work)


def test_c08_a_dead_connection_is_noticed_and_the_call_repeated(path: Path) -> None:
    async def work() -> None:
        async with Client(path, timeout=5, on_unavailable="raise") as client:
            with FakeAgent(path, marking):
                await ask_many(client, "before", 3)
            with FakeAgent(path, marking) as fake:
                await asyncio.gather(*(ask_many(client, f"after{n}", 3) for n in range(8)))
        assert len(fake.peers) == 1

    run(work)


def test_c08_the_end_is_told_to_all_who_wait(agent: StartAgent, path: Path) -> None:
    fake = agent(lambda peer: None if peer.number else peer.read() and None)

    async def work() -> None:
        async with Client(path, timeout=5, on_unavailable="raise") as client:
            calls = [client.acquire("api", str(n)) for n in range(5)]
            results = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(result, Unavailable) for result in results), results

    run(work)
    assert len(fake.peers) <= 5


@pytest.mark.parametrize("mode", ["allow", "deny", "raise"])
def test_c20_no_agent(path: Path, mode: Any) -> None:
    async def work() -> None:
        async with Client(path, on_unavailable=mode) as client:
            calls: list[Callable[[], Awaitable[Any]]] = [
                partial(client.acquire, "api", "k"),
                partial(client.peek, "api", "k"),
                partial(client.acquire_all, [("api", "k"), ("api", "j")]),
                partial(client.throttle, "k", 1, 1, 1),
                partial(client.refund, "api", "k"),
                partial(client.reset, "api", "k"),
                partial(client.release, 7),
            ]
            for call in calls:
                if mode == "raise":
                    with pytest.raises(AgentNotRunning):
                        await call()
                    continue
                answer = await call()
                if answer is not False:
                    assert answer.degraded
                    assert getattr(answer, "allowed", not getattr(answer, "limited", True)) is (
                        mode == "allow"
                    )
            with pytest.raises(Unavailable):
                await client.ping()

    run(work)


def test_disabled(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLSIDECAR_DISABLE", "1")

    async def work() -> None:
        client = Client(path, on_unavailable="raise")
        assert (await client.acquire("api", "k")).source is Source.CLIENT
        with pytest.raises(Unavailable, match="RLSIDECAR_DISABLE"):
            await client.ping()

    run(work)


def test_c12_the_budget_is_kept(agent: StartAgent, path: Path) -> None:
    agent(silent)

    async def work() -> None:
        async with Client(path, timeout=0.1, on_unavailable="raise") as client:
            took = []
            for _ in range(10):
                began = time.monotonic()
                with pytest.raises(AgentTimeout):
                    await client.acquire("api", "k")
                took.append(time.monotonic() - began)
            assert 0.099 <= min(took) < 0.15

    run(work)


def test_a_reply_that_lies_there_when_the_loop_was_busy_still_counts(agent: StartAgent, path: Path) -> None:
    agent(marking)

    async def work() -> None:
        async with Client(path, timeout=0.05, on_unavailable="raise") as client:
            await ask_many(client, "warm", 1)
            call = asyncio.create_task(client.acquire("api", "k"))
            await asyncio.sleep(0)
            time.sleep(0.1)  # a handler that does not yield
            assert (await call).limit == mark("k")

    run(work)


def test_c27_failures_leave_no_descriptor(agent: StartAgent, path: Path) -> None:
    agent(lambda peer: peer.send(peer.read() and b"\xc1"))

    async def work() -> None:
        async with Client(path, timeout=1) as client:
            await client.acquire("api", "k")
            before = open_descriptors()
            for _ in range(300):
                assert (await client.acquire("api", "k")).degraded
            assert open_descriptors() <= before + 2

    run(work)
    gc.collect()


def test_wait_has_a_connection_to_itself_that_ends_with_it(agent: StartAgent, path: Path) -> None:
    """So that the agent knows that the place in its queue is free."""
    ended = threading.Event()

    def play(peer: Peer) -> None:
        while True:
            msgid, _, params = peer.read()
            if params[-1] == {"wait_ms": 5000}:
                try:
                    peer.read()
                finally:
                    ended.set()
            peer.reply(msgid, ALLOWED)

    fake = agent(play)

    async def work() -> None:
        async with Client(path, timeout=1, on_unavailable="raise") as client:
            waiting = asyncio.create_task(client.acquire("api", "k", wait=5))
            await asyncio.sleep(0.05)
            assert await client.acquire("api", "other")
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert await client.acquire("api", "other")
        assert await asyncio.to_thread(ended.wait, 5)

    run(work)
    assert [number for number, *_ in fake.requests] == [0, 1, 1]


def holding(peer: Peer) -> None:
    while True:
        msgid, method, _ = peer.read()
        peer.reply(msgid, True if method == "release" else [*ALLOWED, 77])


def test_hold_releases_over_its_own_connection(agent: StartAgent, path: Path) -> None:
    fake = agent(holding)

    async def work() -> None:
        async with Client(path, timeout=2, on_unavailable="raise") as client:
            async with client.hold("exports", "k") as permit:
                assert permit.decision.permit == 77
                await client.acquire("api", "k")
            assert await permit.release() is False
            async with client.hold("exports", "k") as permit:
                assert await permit.release() is True

    run(work)
    assert [(number, method) for number, _, method, _ in fake.requests] == [
        (0, "acquire"),
        (1, "acquire"),
        (0, "release"),
        (0, "acquire"),
        (0, "release"),
    ]


def test_hold_denied(agent: StartAgent, path: Path) -> None:
    agent(answering(DENIED))

    async def work() -> None:
        async with Client(path, timeout=2) as client:
            with pytest.raises(RateLimited):
                async with client.hold("exports", "k"):
                    pytest.fail("ran")

    run(work)


def test_c16_a_hold_cancelled_inside_is_released(agent: StartAgent, path: Path) -> None:
    fake = agent(holding)

    async def work() -> None:
        async with Client(path, timeout=2, on_unavailable="raise") as client:

            async def export() -> None:
                async with client.hold("exports", "k"):
                    await asyncio.sleep(10)

            task = asyncio.create_task(export())
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    run(work)
    assert [method for _, _, method, _ in fake.requests] == ["acquire", "release"]


def test_a_permit_that_comes_too_late_goes_back(agent: StartAgent, path: Path) -> None:
    gave_up = threading.Event()
    notified: list[Any] = []

    def play(peer: Peer) -> None:
        msgid, _, _ = peer.read()
        gave_up.wait(5)
        peer.reply(msgid, [*ALLOWED, 77])
        notified.append(msgpack.unpackb(peer.sock.recv(4096)))

    agent(play)

    async def work() -> None:
        async with Client(path, timeout=0.05) as client:
            assert (await client.acquire("exports", "k")).degraded
            gave_up.set()
            await asyncio.to_thread(eventually, lambda: bool(notified))

    run(work)
    assert notified == [[2, "release", [77]]]


def test_c15_fork_after_use(agent: StartAgent, path: Path) -> None:
    fake = agent(marking)
    client = Client(path, timeout=10, on_unavailable="raise")

    async def work() -> None:
        await ask_many(client, "before", 10)
        pid = in_child(lambda: threading_run(ask_many(client, "child", 500)))
        await ask_many(client, "parent", 500)
        assert await asyncio.to_thread(exit_status, pid) == 0
        await ask_many(client, "after", 10)
        await client.close()

    run(work)
    connections = {params[1].split(":")[0]: number for number, _, _, params in fake.requests}
    assert connections["before"] == connections["parent"] == connections["after"] == 0
    assert connections["child"] == 1


def threading_run(work: Coroutine[Any, Any, None]) -> None:
    """A loop of its own: the parent's is still marked as running in this thread."""
    failures: list[BaseException] = []

    def target() -> None:
        try:
            asyncio.run(work)
        except BaseException as e:
            failures.append(e)

    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
    for failure in failures:
        raise failure


def test_a_fork_closes_the_parents_descriptors(agent: StartAgent, path: Path) -> None:
    agent(marking)
    client = Client(path, timeout=5, on_unavailable="raise")

    async def work() -> None:
        await ask_many(client, "k", 1)
        fd = client._here().shared()._fd  # type: ignore[union-attr]

        def closed_here() -> None:
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(fd)

        assert exit_status(in_child(closed_here)) == 0
        await ask_many(client, "j", 1)
        await client.close()

    run(work)


def test_c26_a_message_without_end(agent: StartAgent, path: Path) -> None:
    fake = agent(saying(lambda msgid: b"\xdb\x3b\x9a\xca\x00" + b"x" * 70_000))

    async def work() -> None:
        async with Client(path, timeout=5, on_unavailable="raise") as client:
            for _ in range(2):
                with pytest.raises(ProtocolError):
                    await client.acquire("api", "k")

    run(work)
    assert len(fake.peers) == 2


def test_an_unknown_policy_leaves_the_connection(agent: StartAgent, path: Path) -> None:
    fake = agent(answering(None, [3, "unknown policy: api"]))

    async def work() -> None:
        async with Client(path, timeout=2) as client:
            for limit in ("api", Limit.per_second(3)):
                with pytest.raises(UnknownPolicy):
                    await client.acquire(limit, "k")

    run(work)
    assert len(fake.peers) == 1
