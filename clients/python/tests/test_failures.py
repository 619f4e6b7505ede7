"""Everything that can go wrong between client and agent, and what the caller sees of it."""

from __future__ import annotations

import errno
import itertools
import logging
import os
import socket
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest
from conftest import StartAgent
from fake_agent import (
    ALLOWED,
    ALLOWING,
    DENIED,
    FakeAgent,
    Peer,
    Script,
    answering,
    closing,
    eventually,
    response,
    saying,
    silent,
)

from rlsidecar import (
    AgentNotRunning,
    AgentTimeout,
    AllDecision,
    Client,
    Decision,
    ProtocolError,
    RateLimited,
    Source,
    ThrottleReply,
    Unavailable,
    UnknownPolicy,
    _back_off,
    _questions,
)
from rlsidecar._connection import Connection

LATE = 0.005


def elapsed(call: Callable[[], Any]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def ends_at(budget: float, call: Callable[[], Any]) -> None:
    """The call takes its budget and at most 5 ms more. A busy machine gets more than one try."""
    for _ in range(20):
        took = elapsed(call)
        assert took >= budget
        if took < budget + LATE:
            return
    raise AssertionError(f"took {took:.4f} s, the budget is {budget} s")


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def no_back_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_back_off, "BACK_OFF", (0.0, 0.0))


def test_c01_allowed_denied_error(agent: StartAgent, path: Path) -> None:
    def play(peer: Peer) -> None:
        while True:
            msgid, _, params = peer.read()
            if params[0] == "none":
                peer.reply(msgid, None, [3, "unknown policy: none"])
            else:
                peer.reply(msgid, ALLOWED if params[0] == "yes" else DENIED)

    fake = agent(play)
    with Client(path, timeout=2, on_unavailable="raise") as client:
        assert client.acquire("yes", "k").allowed is True
        assert client.acquire("no", "k").allowed is False
        with pytest.raises(UnknownPolicy, match="unknown policy: none"):
            client.acquire("none", "k")
        assert client.acquire("yes", "k")
    assert len(fake.peers) == 1


def test_c03_one_byte_at_a_time(agent: StartAgent, path: Path) -> None:
    def play(peer: Peer) -> None:
        while True:
            msgid, _, _ = peer.read()
            for byte in response(msgid, [True, 100, 99, 1000, 0, 0, 0]):
                peer.send(bytes([byte]))

    fake = agent(play)
    with Client(path, timeout=2, on_unavailable="raise") as client:
        for _ in range(20):
            assert client.acquire("api", "k").remaining == 99
    assert len(fake.peers) == 1


def test_c04_a_dribbling_reply_ends_at_the_budget(agent: StartAgent, path: Path) -> None:
    finished = threading.Event()

    def play(peer: Peer) -> None:
        msgid, _, _ = peer.read()
        for byte in response(msgid, ALLOWED):
            peer.send(bytes([byte]))
            finished.wait(0.02)

    agent(play)
    with Client(path, timeout=0.1, on_unavailable="raise") as client:

        def call() -> None:
            with pytest.raises(AgentTimeout):
                client.acquire("api", "k")

        ends_at(0.1, call)
    finished.set()


def test_c05_a_late_reply_is_nobody_elses(agent: StartAgent, path: Path) -> None:
    """A's reply is written after A gave up; B's connection never carries it."""
    gave_up = threading.Event()

    def play(peer: Peer) -> None:
        while True:
            msgid, _, params = peer.read()
            if params[1] == "A":
                gave_up.wait(5)
            peer.reply(msgid, [True, len(params[1]), 0, 0, 0, 0, 0])

    fake = agent(play)
    with Client(path, timeout=0.1, on_unavailable="raise") as client:
        with pytest.raises(AgentTimeout):
            client.acquire("api", "A")
        gave_up.set()
        assert client.acquire("api", "BB", timeout=2).limit == 2
    assert [number for number, *_ in fake.requests] == [0, 1], "asked again after a time-out"


NOT_THE_REPLY: dict[str, Callable[[int], bytes]] = {
    "wrong msgid": lambda msgid: response((msgid + 1) % 2**31, ALLOWED),
    "msgid as float": lambda msgid: msgpack.packb([1, float(msgid), None, ALLOWED]),
    "type 0": lambda msgid: msgpack.packb([0, msgid, None, ALLOWED]),
    "type 2": lambda msgid: msgpack.packb([2, msgid, None, ALLOWED]),
    "type 9": lambda msgid: msgpack.packb([9, msgid, None, ALLOWED]),
    "type true": lambda msgid: msgpack.packb([True, msgid, None, ALLOWED]),
    "three elements": lambda msgid: msgpack.packb([1, msgid, None]),
    "no array": lambda _: msgpack.packb({"allowed": True}),
    "empty array": lambda _: b"\x90",
    "nil": lambda _: b"\xc0",
    "text": lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "never used byte": lambda _: b"\xc1",
    "map with array keys": lambda msgid: b"\x94\x01\xce" + msgid.to_bytes(4, "big") + b"\xc0\x81\x90\x01",
    "two replies": lambda msgid: response(msgid, ALLOWED) * 2,
    "reply and another": lambda msgid: response(msgid, ALLOWED) + response(msgid ^ 1, DENIED),
    "reply and half another": lambda msgid: response(msgid, ALLOWED) + response(msgid ^ 1, DENIED)[:5],
}


@pytest.mark.parametrize("what", NOT_THE_REPLY)
def test_c06_not_the_reply(agent: StartAgent, path: Path, what: str) -> None:
    fake = agent(saying(NOT_THE_REPLY[what]))
    with Client(path, timeout=2, on_unavailable="raise") as client:
        for _ in range(2):
            with pytest.raises(ProtocolError):
                client.acquire("api", "k")
    assert len(fake.peers) == 2, "the connection was used again"
    with Client(path, timeout=2, on_unavailable="deny") as client:
        decision = client.acquire("api", "k")
    assert (decision.allowed, decision.degraded, decision.source) == (False, True, Source.CLIENT)


def test_c07_notifications_are_skipped(agent: StartAgent, path: Path) -> None:
    hello: bytes = msgpack.packb([2, "hello", [1, {"a": "x" * 3000}]])
    other: bytes = msgpack.packb([2, b"hello", None, "extra"])

    def play(peer: Peer) -> None:
        peer.send(hello)
        while True:
            msgid, _, _ = peer.read()
            peer.send(hello * 30 + other + response(msgid, ALLOWED) + other)

    fake = agent(play)
    with Client(path, timeout=2, on_unavailable="raise") as client:
        for _ in range(3):
            assert client.acquire("api", "k")
    assert len(fake.peers) == 1


def test_c08_end_before_the_reply_on_a_reused_connection_is_retried_once(
    agent: StartAgent, path: Path
) -> None:
    def play(peer: Peer) -> None:
        msgid, _, _ = peer.read()
        peer.reply(msgid, ALLOWED)
        if peer.number == 0:
            peer.read()

    fake = agent(play)
    with Client(path, timeout=2, on_unavailable="raise") as client:
        assert client.acquire("api", "1")
        assert client.acquire("api", "2")
    assert [(number, params[1]) for number, _, _, params in fake.requests] == [(0, "1"), (0, "2"), (1, "2")]


def test_c08_end_before_the_reply_on_a_fresh_connection_is_not_retried(agent: StartAgent, path: Path) -> None:
    fake = agent(closing)
    with Client(path, timeout=2, on_unavailable="raise") as client, pytest.raises(Unavailable):
        client.acquire("api", "k")
    assert len(fake.requests) == 1


@pytest.mark.parametrize("part", [1, 2, 6])
def test_c08_end_in_the_middle_is_not_retried(agent: StartAgent, path: Path, part: int) -> None:
    def play(peer: Peer) -> None:
        msgid, _, _ = peer.read()
        peer.reply(msgid, ALLOWED)
        msgid, _, _ = peer.read()
        peer.send(response(msgid, ALLOWED)[:part])

    fake = agent(play)
    with Client(path, timeout=2, on_unavailable="raise") as client:
        assert client.acquire("api", "1")
        with pytest.raises(Unavailable, match="in the middle"):
            client.acquire("api", "2")
    assert len(fake.requests) == 2


def test_c08_a_notification_is_a_byte_of_the_reply(agent: StartAgent, path: Path) -> None:
    def play(peer: Peer) -> None:
        msgid, _, _ = peer.read()
        peer.reply(msgid, ALLOWED)
        peer.read()
        peer.send(msgpack.packb([2, "bye", []]))

    fake = agent(play)
    with Client(path, timeout=2, on_unavailable="raise") as client:
        assert client.acquire("api", "1")
        with pytest.raises(Unavailable):
            client.acquire("api", "2")
    assert len(fake.requests) == 2


def test_c08_reset_before_the_reply(agent: StartAgent, path: Path) -> None:
    """The agent closes with the request unread: the client gets ECONNRESET, not EOF."""
    answered = threading.Event()

    def play(peer: Peer) -> None:
        msgid, _, _ = peer.read()
        peer.reply(msgid, ALLOWED)
        if peer.number == 0:
            answered.wait(5)
            peer.sock.recv(1)
            peer.reset()

    fake = agent(play)
    with Client(path, timeout=2, on_unavailable="raise") as client:
        assert client.acquire("api", "1")
        answered.set()
        assert client.acquire("api", "2")
    assert len(fake.peers) == 2


def test_c09_the_agent_restarts_between_calls(path: Path) -> None:
    with Client(path, timeout=2, on_unavailable="raise") as client:
        for round_ in range(3):
            with FakeAgent(path) as fake:
                for _ in range(5):
                    assert client.acquire("api", str(round_))
            assert len(fake.requests) == 5


def test_c09_all_idle_connections_are_given_up_with_the_first(path: Path) -> None:
    both = threading.Barrier(8)

    def play(peer: Peer) -> None:
        while True:
            msgid, _, params = peer.read()
            if params[1] == "together":
                both.wait(5)
            peer.reply(msgid, ALLOWED)

    with Client(path, timeout=2, on_unavailable="raise") as client:
        with FakeAgent(path, play):
            threads = [threading.Thread(target=client.acquire, args=("api", "together")) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(client._pool._idle) == 8
        with FakeAgent(path):
            assert client.acquire("api", "k")
            assert len(client._pool._idle) == 1


def test_c10_missing_socket(path: Path) -> None:
    client = Client(path, on_unavailable="raise")

    def call() -> None:
        with pytest.raises(AgentNotRunning, match=str(path)):
            client.acquire("api", "k")

    ends_at(0, call)


def test_c10_stale_socket(path: Path) -> None:
    FakeAgent(path).close()
    assert path.is_socket()
    with pytest.raises(AgentNotRunning, match="nobody listens"):
        Client(path, on_unavailable="raise").acquire("api", "k")


def test_c10_regular_file(path: Path) -> None:
    path.write_text("")
    with pytest.raises(AgentNotRunning, match="is not a socket: set RLSIDECAR_ADDRESS"):
        Client(path, on_unavailable="raise").acquire("api", "k")
    assert Client(path).acquire("api", "k").degraded


def test_c10_permission_denied(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is injected: root, whom tests may run as, is denied nothing."""

    class Forbidden(socket.socket):
        def connect(self, _: Any) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket, "socket", Forbidden)
    with pytest.raises(AgentNotRunning, match="permission denied"):
        Client(path, on_unavailable="raise").acquire("api", "k")


def fill_backlog(path: Path) -> tuple[socket.socket, list[socket.socket]]:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(0)
    waiting = []
    while True:
        sock = socket.socket(socket.AF_UNIX)
        waiting.append(sock)
        sock.setblocking(False)
        try:
            sock.connect(str(path))
        except BlockingIOError:
            return listener, waiting


def test_c11_a_full_backlog_is_retried_until_the_budget_ends(path: Path) -> None:
    listener, waiting = fill_backlog(path)
    client = Client(path, timeout=0.1, on_unavailable="raise")

    def call() -> None:
        with pytest.raises(AgentTimeout):
            client.acquire("api", "k")

    ends_at(0.1, call)
    for sock in (*waiting, listener):
        sock.close()


def test_c11_a_full_backlog_that_empties(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listener, waiting = fill_backlog(path)
    refused = threading.Event()
    sleep = time.sleep

    def pause(seconds: float) -> None:
        refused.set()
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", pause)

    def serve() -> None:
        assert refused.wait(5)
        for _ in waiting[:-1]:
            listener.accept()[0].close()
        sock, _ = listener.accept()
        with sock:
            sock.settimeout(5)
            _, msgid, _, _ = msgpack.unpackb(sock.recv(4096))
            sock.sendall(response(msgid, ALLOWED))

    thread = threading.Thread(target=serve)
    thread.start()
    with Client(path, timeout=2, on_unavailable="raise") as client:
        assert client.acquire("api", "k")
    thread.join()
    for sock in (*waiting, listener):
        sock.close()


@pytest.mark.parametrize("budget", [0.02, 0.1])
def test_c12_an_agent_that_never_answers(agent: StartAgent, path: Path, budget: float) -> None:
    agent(silent)
    client = Client(path, timeout=5)
    ends_at(budget, lambda: client.acquire("api", "k", timeout=budget))
    assert client.acquire("api", "k", timeout=budget).degraded


def test_c12_an_agent_that_never_accepts(path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen(64)
    with listener, Client(path) as client:
        ends_at(0.05, lambda: client.acquire("api", "k"))


def test_a_reply_that_lies_there_when_the_budget_is_over_is_taken() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        connection = Connection(ours)
        theirs.sendall(response(7, "x" * 60_000))
        assert connection._receive(7, time.monotonic() - 1) == (None, "x" * 60_000)
        with pytest.raises(AgentTimeout):
            connection._receive(8, time.monotonic() - 1)


def test_c14_first_msgids_differ(agent: StartAgent, path: Path) -> None:
    fake = agent()
    for _ in range(1000):
        with Client(path, timeout=2, on_unavailable="raise") as client:
            client.acquire("api", "k")
    first = [msgid for _, msgid, _, _ in fake.requests]
    assert len(set(first)) >= 998
    assert 0 <= min(first) <= max(first) <= 2**31 - 1


def test_c14_msgids_wrap(agent: StartAgent, path: Path) -> None:
    fake = agent()
    with Client(path, timeout=2, on_unavailable="raise") as client:
        connection = client._pool.connect(time.monotonic() + 2)
        connection._msgid = 2**31 - 2
        client._pool.give(connection)
        for _ in range(4):
            assert client.acquire("api", "k")
    assert [msgid for _, msgid, _, _ in fake.requests] == [2**31 - 2, 2**31 - 1, 0, 1]


def held(client: Client) -> Decision:
    try:
        with client.hold("exports", "k") as permit:
            return permit.decision
    except RateLimited as denied:
        return denied.decision


CALLS: dict[str, Callable[[Client], Any]] = {
    "acquire": lambda client: client.acquire("api", "k"),
    "acquire_all": lambda client: client.acquire_all([("api", "k"), ("10/s", "k", 2)]),
    "peek": lambda client: client.peek("api", "k"),
    "throttle": lambda client: client.throttle("k", 9, 1, 1),
    "refund": lambda client: client.refund("api", "k"),
    "reset": lambda client: client.reset("api", "k"),
    "release": lambda client: client.release(7),
    "hold": held,
}
FAILURES: dict[str, tuple[Script | None, type[Unavailable]]] = {
    "no agent": (None, AgentNotRunning),
    "hung": (silent, AgentTimeout),
    "closes": (closing, Unavailable),
    "garbage": (saying(lambda _: b"\xc1"), ProtocolError),
    "wrong shape": (answering("what?"), ProtocolError),
    "error 1": (answering(None, [1, "x"]), ProtocolError),
    "error 2": (answering(None, [2, "x"]), ProtocolError),
    "error 5": (answering(None, [5, "x"]), Unavailable),
    "error 6": (answering(None, [6, "x"]), Unavailable),
    "error 7": (answering(None, [7, "x"]), Unavailable),
    "error 9": (answering(None, [9, "x"]), Unavailable),
    "error 99": (answering(None, [99, "x"]), Unavailable),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("call", CALLS)
def test_c20_one_choke_point(agent: StartAgent, path: Path, call: str, failure: str) -> None:
    script, kind = FAILURES[failure]
    if script is not None:
        agent(script)
    ask = CALLS[call]
    timeout = 0.03 if kind is AgentTimeout else 5
    for allowed in (True, False):
        with Client(path, timeout=timeout, on_unavailable="allow" if allowed else "deny") as client:
            check_degraded(ask(client), allowed)
    with Client(path, timeout=timeout, on_unavailable="raise") as client, pytest.raises(kind):
        ask(client)


def check_degraded(answer: Any, allowed: bool) -> None:
    match answer:
        case Decision():
            assert (answer.allowed, answer.degraded, answer.source) == (allowed, True, Source.CLIENT)
            assert answer.retry_after is not None
            assert (answer.retry_after.total_seconds() == 0) == allowed
        case AllDecision():
            assert (answer.allowed, answer.degraded, len(answer.decisions)) == (allowed, True, 2)
        case ThrottleReply():
            assert (answer.limited, answer.degraded) == (not allowed, True)
        case _:
            assert answer is False


@pytest.mark.parametrize("mode", ["allow", "deny", "raise"])
def test_c20_info_and_ping_always_raise(path: Path, mode: Any) -> None:
    client = Client(path, on_unavailable=mode)
    for ask in (client.info, client.ping):
        with pytest.raises(AgentNotRunning):
            ask()


def test_c23_acquire_all_is_all_or_nothing(agent: StartAgent, path: Path) -> None:
    agent(answering([False, [ALLOWED, DENIED]]))
    with Client(path, timeout=2, on_unavailable="raise") as client:
        answer = client.acquire_all([("a", "k"), ("b", "k")])
    assert not answer
    assert [bool(decision) for decision in answer.decisions] == [True, False]


def with_result(body: bytes) -> Callable[[int], bytes]:
    return lambda msgid: b"\x94\x01\xce" + msgid.to_bytes(4, "big") + b"\xc0" + body


# 64 KiB decoded, and the buffer of the fake agent, which is 1 MiB.
BOMB_MEMORY = 4_000_000
BOMBS: dict[str, bytes] = {
    "array32 of 2**31": b"\xdd\x80\x00\x00\x00",
    "map32 of 2**31": b"\xdf\x80\x00\x00\x00",
    "array of 1025": b"\xdc\x04\x01" + b"\xc0" * 1025,
    "map of 1025": b"\xde\x04\x01" + b"".join(b"\xcd" + i.to_bytes(2, "big") + b"\xc0" for i in range(1025)),
    "64 KiB and more of str": b"\xdb\x00\x01\x00\x00" + b"x" * 65536,
    "64 KiB and more of arrays": b"\xdc\x04\x00" + (b"\xdc\x00\x80" + b"\xc0" * 128) * 600,
    "str32 of 1 GiB, and its bytes": b"\xdb\x40\x00\x00\x00" + b"x" * 200_000,
    "nested 9 deep": b"\x91" * 8 + b"\xc0",
    "nested 500 deep": b"\x91" * 500 + b"\xc0",
    "nested 60000 deep": b"\x91" * 60_000 + b"\xc0",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_c26_refused_before_allocation(agent: StartAgent, path: Path, bomb: str) -> None:
    fake = agent(saying(with_result(BOMBS[bomb])))
    with Client(path, timeout=5, on_unavailable="raise") as client:
        tracemalloc.start()

        def call() -> None:
            with pytest.raises(ProtocolError):
                client.acquire("api", "k")

        took = elapsed(call)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert took < 2
    assert peak < BOMB_MEMORY
    assert len(fake.peers) == 1


@pytest.mark.parametrize(("levels", "refused"), [(7, False), (8, True)])
def test_c26_depth_counts_in_what_is_skipped_too(
    agent: StartAgent, path: Path, levels: int, refused: bool
) -> None:
    agent(saying(lambda msgid: b"\x95" + response(msgid, ALLOWED)[1:] + b"\x91" * (levels - 1) + b"\x90"))
    with Client(path, timeout=2) as client:
        assert client.acquire("api", "k").degraded is refused


@pytest.mark.parametrize(
    "header", [b"\xdb\x40\x00\x00\x00", b"\xc6\x40\x00\x00\x00", b"\xc9\x40\x00\x00\x00\x01"]
)
def test_c26_a_gibibyte_that_never_comes(agent: StartAgent, path: Path, header: bytes) -> None:
    agent(saying(with_result(header)))
    client = Client(path, on_unavailable="raise")
    tracemalloc.start()
    with pytest.raises(Unavailable):
        client.acquire("api", "k")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < BOMB_MEMORY
    assert client._pool.take() is None


def test_a_reply_at_the_bound_is_read(agent: StartAgent, path: Path) -> None:
    """65536 bytes in all: 8 of envelope, 2 of map, 5 of value header, the rest value."""
    agent(saying(with_result(b"\x81\xa0\xdb\x00\x00\xff\xf1" + b"x" * (65536 - 15))))
    with Client(path, timeout=2) as client:
        assert len(client.info()[""]) == 65536 - 15


@pytest.mark.usefixtures("no_back_off")
def test_c27_ten_thousand_failures_leave_no_descriptor(path: Path) -> None:
    client = Client(path)
    client.acquire("api", "k")
    before = open_descriptors()
    for _ in range(10_000):
        assert client.acquire("api", "k").degraded
    assert open_descriptors() == before


@pytest.mark.parametrize("script", [closing, saying(lambda _: b"\xc1"), answering("?")])
def test_c27_failures_of_a_connected_agent_leave_no_descriptor(path: Path, script: Script) -> None:
    client = Client(path, timeout=2)
    before = open_descriptors()
    with FakeAgent(path, script):
        for _ in range(500):
            assert client.acquire("api", "k").degraded
    assert open_descriptors() == before


def test_c29_no_agent_at_start_then_one(path: Path) -> None:
    client = Client(path, timeout=2)
    assert client.acquire("api", "k").degraded
    with FakeAgent(path) as fake:
        deadline = time.monotonic() + 5
        while client.acquire("api", "k").degraded:
            assert time.monotonic() < deadline
        assert fake.requests
        client.close()


class Jitter:
    """Always the longest pause."""

    def uniform(self, _: float, longest: float) -> float:
        return longest


def test_no_agent_is_backed_off_from(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = []
    now = 1000.0

    class Counting(socket.socket):
        def connect(self, _: Any) -> None:
            attempts.append(now)
            raise FileNotFoundError(errno.ENOENT, "No such file")

    monkeypatch.setattr(_back_off, "_random", Jitter())
    monkeypatch.setattr(socket, "socket", Counting)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    client = Client(path)
    for _ in range(6000):
        client.acquire("api", "k")
        now += 0.001
    pauses = [round(b - a, 3) for a, b in itertools.pairwise(attempts)]
    assert pauses[:7] == pytest.approx([0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0], abs=0.0021)
    assert max(pauses) <= 1.002


def test_failures_at_the_same_time_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(_back_off, "_random", Jitter())
    monkeypatch.setattr(time, "monotonic", lambda: now)
    back_off = _back_off.BackOff()
    for _ in range(64):
        back_off.failed()
    assert back_off._retry_at == 1000.025
    now = 1000.1
    back_off.failed()
    assert back_off._retry_at == pytest.approx(1000.15)


def test_a_socket_that_was_closed_under_the_client_is_a_lost_connection(
    agent: StartAgent, path: Path
) -> None:
    fake = agent()
    with Client(path, timeout=2, on_unavailable="raise") as client:
        client.acquire("api", "k")
        connection = client._pool.take()
        assert connection is not None
        connection.close()
        connection._armed = (False, 0.0)
        client._pool.give(connection)
        assert client.acquire("api", "k")
    assert len(fake.peers) == 2


def test_one_log_line_per_interval(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    client = Client(path)
    with caplog.at_level(logging.DEBUG, logger="rlsidecar"):
        for _ in range(100):
            client.acquire("api", "k")
        now += _questions.LOG_INTERVAL
        client.peek("api", "k")
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "on_unavailable=allow" in caplog.messages[0]
    assert "(99 more" in caplog.messages[1]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, ValueError])
def test_a_non_local_exit_closes_the_connection(
    agent: StartAgent, path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    fake = agent()
    with Client(path, timeout=2, on_unavailable="raise") as client:
        client.acquire("api", "1")
        with monkeypatch.context() as patch:

            def interrupted(*_: Any) -> Any:
                raise kind

            patch.setattr("rlsidecar._connection.Connection._receive", interrupted)
            with pytest.raises(kind):
                client.acquire("api", "2")
        assert client.acquire("api", "3")
        eventually(lambda: len(fake.requests) == 3)
    seen = sorted((number, params[1]) for number, _, _, params in fake.requests)
    assert seen == [(0, "1"), (0, "2"), (1, "3")]


def test_a_closed_client_connects_again(agent: StartAgent, path: Path) -> None:
    fake = agent(ALLOWING)
    client = Client(path, timeout=2, on_unavailable="raise")
    for _ in range(2):
        assert client.acquire("api", "k")
        client.close()
    assert len(fake.peers) == 2


@pytest.mark.usefixtures("no_back_off")
def test_no_descriptor_to_be_had(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket, "socket", exhausted)
    assert Client(path).acquire("api", "k").degraded
