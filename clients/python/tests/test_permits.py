"""Permits of concurrency limits: held over a connection of their own, and released however a block ends."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import StartAgent
from fake_agent import DENIED, FakeAgent, Peer, answering, eventually, silent
from test_threads_and_forks import exit_status, in_child, run_all

from rlsidecar import AgentNotRunning, Client, Permit, RateLimited, Source, Unavailable, UnknownPolicy


class Desk:
    """An agent that gives out the permits 1, 2, 3 and so on, and pongs."""

    def __init__(self) -> None:
        self.held: set[int] = set()
        self.ended: list[int] = []
        self._last = 0
        self._lock = threading.Lock()

    def __call__(self, peer: Peer) -> None:
        try:
            while True:
                self.answer(peer, *peer.read())
        finally:
            self.ended.append(peer.number)

    def answer(self, peer: Peer, msgid: int, method: str, params: list[Any]) -> None:
        if method == "release":
            with self._lock:
                was_held = params[0] in self.held
                self.held.discard(params[0])
            peer.reply(msgid, was_held)
        elif method == "acquire":
            with self._lock:
                self._last += 1
                permit = self._last
                self.held.add(permit)
            peer.reply(msgid, [True, 3, 2, 1000, 0, 3, 0, permit])
        else:
            peer.reply(msgid, "pong")


class KillsAt(Desk):
    """As Desk, but its first connection ends with the first call of `method`."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.method = method

    def answer(self, peer: Peer, msgid: int, method: str, params: list[Any]) -> None:
        killing = peer.number == 0 and method == self.method
        if not killing or method == "acquire":
            super().answer(peer, msgid, method, params)
        if killing:
            raise OSError("killed")


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def fake(agent: StartAgent, desk: Desk) -> FakeAgent:
    return agent(desk)


@pytest.fixture
def client(path: Path, fake: FakeAgent) -> Iterator[Client]:
    with Client(path, timeout=5, on_unavailable="raise") as client:
        yield client


def said(fake: FakeAgent) -> list[tuple[int, str]]:
    """The connection and the method of each request."""
    return [(number, method) for number, _, method, _ in fake.requests]


def test_a_hold_has_a_connection_to_itself(client: Client, fake: FakeAgent, desk: Desk) -> None:
    client.ping()
    with client.hold("exports", key="u1") as permit:
        assert permit.decision
        assert desk.held == {permit.decision.permit}
        client.ping()
        client.ping()
        with client.hold("exports", key="u1", cost=2):
            assert len(desk.held) == 2
    assert not desk.held
    client.ping()
    assert said(fake) == [
        (0, "ping"),
        (0, "acquire"),
        (1, "ping"),
        (1, "ping"),
        (1, "acquire"),
        (1, "release"),
        (0, "release"),
        (0, "ping"),
    ]
    assert [params for _, _, method, params in fake.requests if method == "acquire"] == [
        ["exports", "u1", 1],
        ["exports", "u1", 2],
    ]
    assert len(client._pool._idle) == 2


def test_early_release(client: Client, desk: Desk, fake: FakeAgent) -> None:
    with client.hold("exports", "u1") as permit:
        assert permit.release() is True
        assert not desk.held
        assert permit.release() is False
    assert said(fake) == [(0, "acquire"), (0, "release")]


def test_release_by_number(client: Client, desk: Desk, fake: FakeAgent) -> None:
    decision = client.acquire("exports", "u1")
    assert decision.permit == 1
    assert client.release(decision.permit) is True
    assert client.release(decision.permit) is False
    assert client.release(None) is False
    assert said(fake) == [(0, "acquire"), (0, "release"), (0, "release")]


class Failed(BaseException):
    pass


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, StopIteration, Failed])
def test_released_across_exceptions(client: Client, desk: Desk, kind: type[BaseException]) -> None:
    error = kind("mine")

    def work() -> None:
        with client.hold("exports", "u1"):
            assert desk.held
            raise error

    with pytest.raises(kind) as caught:
        work()
    assert caught.value is error
    assert not desk.held


def test_released_when_a_block_is_abandoned(client: Client, desk: Desk) -> None:
    def rows() -> Any:
        with client.hold("exports", "u1"):
            yield 1

    generator = rows()
    next(generator)
    assert desk.held
    generator.close()
    assert not desk.held


def test_hold_decorates_a_function(client: Client, desk: Desk) -> None:
    @client.hold("exports", "u1")
    def export() -> int:
        return len(desk.held)

    assert [export(), export()] == [1, 1]
    assert not desk.held


def test_a_denial_is_raised_and_the_block_does_not_run(agent: StartAgent, path: Path) -> None:
    fake = agent(answering(DENIED))
    with Client(path, timeout=5, on_unavailable="raise") as client:
        for _ in range(2):
            with (
                pytest.raises(RateLimited, match=r"retry after 0:00:00\.25"),
                client.hold("exports", "u1", wait=2.0),
            ):
                pytest.fail("the block ran")
    assert [params for _, _, _, params in fake.requests] == [["exports", "u1", 1, {"wait_ms": 2000}]] * 2
    assert len(fake.peers) == 1


def test_a_wrong_policy_is_raised(agent: StartAgent, path: Path) -> None:
    fake = agent(answering(None, [3, "unknown policy: exports"]))
    with Client(path, timeout=5) as client:
        for _ in range(2):
            with pytest.raises(UnknownPolicy), client.hold("exports", "u1"):
                pytest.fail("the block ran")
    assert len(fake.peers) == 1


def test_allowed_without_a_permit(agent: StartAgent, path: Path) -> None:
    fake = agent(answering([True, 3, 3, 0, 0, 5, 0]))
    with Client(path, timeout=5, on_unavailable="raise") as client, client.hold("exports", "admin") as permit:
        assert permit.decision.source is Source.LIST
        assert permit.decision.permit is None
        assert len(client._pool._idle) == 1
        assert permit.release() is False
    assert said(fake) == [(0, "acquire")]


def test_unavailable(path: Path) -> None:
    with Client(path).hold("exports", "u1") as permit:
        assert permit.decision.degraded
        assert permit.decision.permit is None
    with pytest.raises(RateLimited) as denied, Client(path, on_unavailable="deny").hold("exports", "u1"):
        pytest.fail("the block ran")
    assert denied.value.decision.degraded
    with pytest.raises(AgentNotRunning), Client(path, on_unavailable="raise").hold("exports", "u1"):
        pytest.fail("the block ran")


def test_switched_off(client: Client, fake: FakeAgent, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLSIDECAR_DISABLE", "1")
    off = Client(path, on_unavailable="raise")
    with off.hold("exports", "u1") as permit:
        assert permit.decision.degraded
    assert off.release(7) is False
    assert not fake.requests


@pytest.mark.parametrize("method", ["acquire", "release"])
def test_a_killed_connection_in_a_hold(agent: StartAgent, path: Path, method: str) -> None:
    desk = KillsAt(method)
    fake = agent(desk)
    with Client(path, timeout=5, on_unavailable="raise") as client:
        with client.hold("exports", "u1"):
            eventually(lambda: method == "release" or desk.ended == [0])
        assert not desk.held
    assert said(fake)[-1] == (1, "release")
    assert len(fake.peers) == 2


def test_the_agent_restarts_in_a_hold(path: Path) -> None:
    with Client(path, timeout=5, on_unavailable="raise") as client:
        with FakeAgent(path, Desk()):
            holding = client.hold("exports", "u1")
            permit = holding.__enter__()
        with FakeAgent(path, Desk()) as fake:
            assert permit.release() is False, "the new agent does not know the permit"
            holding.__exit__(None, None, None)
        assert said(fake) == [(0, "release")]


def test_an_agent_that_is_gone_at_the_release(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The block has done its work: that nobody takes the permit back is no reason to fail it."""
    client = Client(path, timeout=5, on_unavailable="raise")
    with caplog.at_level(logging.WARNING, logger="rlsidecar"):
        agent = FakeAgent(path, Desk())
        with client.hold("exports", "u1"):
            agent.close()
    assert len(caplog.records) == 1


def test_an_agent_that_hangs_at_the_release(agent: StartAgent, path: Path) -> None:
    class Hangs(Desk):
        def answer(self, peer: Peer, msgid: int, method: str, params: list[Any]) -> None:
            if method == "release":
                silent(peer)
            else:
                super().answer(peer, msgid, method, params)

    desk = Hangs()
    agent(desk)
    client = Client(path, timeout=5, on_unavailable="raise")
    with client.hold("exports", "u1", timeout=0.2):
        began = time.monotonic()
    assert 0.2 <= time.monotonic() - began < 2
    eventually(lambda: desk.ended == [0])


def test_a_release_that_is_refused_does_not_break_the_block(agent: StartAgent, path: Path) -> None:
    class Refuses(Desk):
        def answer(self, peer: Peer, msgid: int, method: str, params: list[Any]) -> None:
            if method == "release":
                peer.reply(msgid, None, [8, "not yours"])
            else:
                super().answer(peer, msgid, method, params)

    agent(Refuses())
    with Client(path, timeout=5, on_unavailable="raise") as client, client.hold("exports", "u1") as permit:
        assert permit.release() is False


def test_a_child_that_leaves_the_block_releases_nothing(client: Client, fake: FakeAgent, desk: Desk) -> None:
    with client.hold("exports", "u1") as permit:
        child = os.fork()
        if child != 0:
            assert exit_status(child) == 7
            assert desk.held == {permit.decision.permit}
            assert said(fake) == [(0, "acquire")]
    if child == 0:
        os._exit(7)
    assert not desk.held
    assert said(fake) == [(0, "acquire"), (0, "release")]


def test_a_child_has_holds_of_its_own(client: Client, fake: FakeAgent, desk: Desk) -> None:
    with client.hold("exports", "u1") as permit:

        def work() -> None:
            assert permit.release() is False
            with client.hold("exports", "u1") as own:
                assert own.decision.permit == 2

        assert exit_status(in_child(work)) == 0
        assert desk.held == {1}
    assert not desk.held
    assert said(fake) == [(0, "acquire"), (1, "acquire"), (1, "release"), (0, "release")]


def test_a_child_keeps_no_hold_of_the_parent_open(client: Client, desk: Desk) -> None:
    """When the parent's held connection closes, the agent sees it though a child lives."""
    read_end, write_end = os.pipe()

    def live_until_told() -> None:
        os.close(write_end)
        os.read(read_end, 1)

    with client.hold("exports", "u1"):
        child = in_child(live_until_told)
    client.close()
    try:
        eventually(lambda: desk.ended == [0])
    finally:
        os.close(write_end)
        os.close(read_end)
        assert exit_status(child) == 0


def test_the_pid_is_checked_where_no_hook_ran(
    client: Client, fake: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client.hold("exports", "u1") as permit:
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            assert permit.release() is False
        assert said(fake) == [(0, "acquire")]
        assert permit.release() is True


def test_many_threads_hold_and_release(client: Client, fake: FakeAgent, desk: Desk) -> None:
    def work() -> None:
        for _ in range(50):
            with client.hold("exports", "u1") as permit:
                client.ping()
                assert permit.decision.permit in desk.held

    run_all([work] * 16)
    assert not desk.held
    assert sum(method == "release" for _, method in said(fake)) == 16 * 50
    assert len(fake.peers) <= 32


def test_threads_that_release_the_same_permit(client: Client, fake: FakeAgent) -> None:
    for _ in range(20):
        with client.hold("exports", "u1") as permit:
            released: list[bool] = []

            def release(keep: list[bool] = released, held: Permit = permit) -> None:
                keep.append(held.release())

            run_all([release] * 4)
            assert sorted(released) == [False, False, False, True]
    assert sum(method == "release" for _, method in said(fake)) == 20


def test_a_permit_that_comes_too_late_closes_its_connection(agent: StartAgent, path: Path) -> None:
    gave_up = threading.Event()
    desk = Desk()

    def play(peer: Peer) -> None:
        msgid, method, params = peer.read()
        gave_up.wait(5)
        desk.answer(peer, msgid, method, params)

    agent(play)
    client = Client(path, timeout=0.05, on_unavailable="raise")
    with pytest.raises(Unavailable), client.hold("exports", "u1"):
        pytest.fail("the block ran")
    assert client._pool.take() is None
    gave_up.set()
