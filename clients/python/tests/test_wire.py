"""The bytes: golden messages, and what is made of each reply."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgpack
import pytest
from conftest import StartAgent
from fake_agent import ALLOWED, DENIED, Peer, answering, response, saying

from rlsidecar import (
    AgentTimeout,
    AllDecision,
    Client,
    Decision,
    InvalidRequest,
    Limit,
    NotPermitted,
    ProtocolError,
    RlsidecarError,
    Source,
    Unavailable,
    UnknownPolicy,
    _wire,
)
from rlsidecar._connection import Connection
from rlsidecar._wire import REQUEST, failure, new_packer

_FILE = Path(__file__).parents[3] / "protocol" / "testdata" / "golden.json"
_VECTORS: dict[str, list[dict[str, Any]]] = json.loads(_FILE.read_text())
GOOD = {vector["id"]: vector for vector in _VECTORS["good"]}
BAD = {vector["id"]: vector for vector in _VECTORS["bad"] if vector["reader"] == "client"}
REQUESTS = [name for name, vector in GOOD.items() if vector["kind"] == "request" and vector["canonical"]]
REPLIES = [name for name, vector in GOOD.items() if vector["kind"] == "response"]
NOTIFICATIONS = [name for name, vector in GOOD.items() if vector["kind"] == "notification"]


def exchange(data: bytes, msgid: int, timeout: float = 2) -> tuple[Any, Any]:
    """What a connection makes of these bytes as the answer to its call number msgid."""
    ours, theirs = socket.socketpair(socket.AF_UNIX)
    with ours, theirs:
        theirs.sendall(data)
        connection = Connection(ours)
        connection._msgid = msgid
        return connection.call("ping", (), time.monotonic() + timeout)


def test_the_vectors_are_there() -> None:
    assert {"G1", "G2", "G3", "G4", "G5", "G6", "G7"} <= GOOD.keys()
    assert len(REQUESTS) > 20
    assert len(REPLIES) > 10
    assert len(BAD) > 5


@pytest.mark.parametrize("name", REQUESTS)
def test_golden_requests_are_written_exactly(name: str) -> None:
    vector = GOOD[name]
    message = (REQUEST, vector["msgid"], vector["method"], vector["params"])
    assert new_packer().pack(message).hex() == vector["hex"]


def test_bytes_are_written_as_bin() -> None:
    message = (REQUEST, 7, "acquire", (b"api", b"user:42", 1))
    assert new_packer().pack(message).hex() == GOOD["G2"]["hex"]


@pytest.mark.parametrize("name", REPLIES)
def test_golden_replies_are_understood(name: str) -> None:
    vector = GOOD[name]
    error, result = exchange(bytes.fromhex(vector["hex"]), vector["msgid"])
    if "error" in vector:
        assert error[:2] == vector["error"]
        assert isinstance(failure(error), RlsidecarError)
        return
    assert error is None
    decode, as_sent = DECODERS[vector["as"]]
    assert as_sent(decode(result)) == vector["result"]


def sent(decision: Decision) -> list[Any]:
    """A decision as the agent wrote it."""
    retry_after = -1 if decision.retry_after is None else decision.retry_after // MILLISECOND
    numbers = [decision.limit, decision.remaining, decision.reset_after // MILLISECOND, retry_after]
    permit = [] if decision.permit is None else [decision.permit]
    return [decision.allowed, *numbers, int(decision.source), int(decision.shadow), *permit]


def all_sent(answer: AllDecision) -> list[Any]:
    return [answer.allowed, [sent(decision) for decision in answer.decisions]]


MILLISECOND = timedelta(milliseconds=1)
DECODERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "decision": (_wire.decision, sent),
    "all": (partial(_wire.all_decision, 2), all_sent),
    "throttle": (_wire.throttle, list),
    "bool": (_wire.truth, bool),
    "pong": (_wire.pong, lambda answer: "pong" if answer else ""),
    "info": (_wire.info, dict),
}


@pytest.mark.parametrize("name", NOTIFICATIONS)
def test_golden_notifications_are_skipped(name: str) -> None:
    notification = bytes.fromhex(GOOD[name]["hex"])
    reply = bytes.fromhex(GOOD["true"]["hex"])
    assert exchange(notification + reply + notification, 7) == (None, True)


@pytest.mark.parametrize("name", BAD)
def test_bad_golden_replies_are_refused(name: str) -> None:
    data = bytes.fromhex(BAD[name]["hex"])
    if name == "reply-str-1g":
        with pytest.raises(Unavailable):
            exchange(data, 7, timeout=0.05)
        return
    began = time.monotonic()
    with pytest.raises(ProtocolError):  # noqa: PT012
        error, result = exchange(data, 7)
        if error is not None:
            failure(error)
        _wire.decision(result)
    assert time.monotonic() - began < 1


@pytest.mark.parametrize(
    ("params", "name"),
    [
        (("api", "user:42"), "G1"),
        (("60/minute", "user:42"), "acquire-inline-2"),
        ((Limit.per_minute(60), "user:42"), "acquire-inline-2"),
        ((Limit.per_minute(60, burst=10), "user:42"), "acquire-inline-3"),
    ],
)
def test_requests_on_the_socket(agent: StartAgent, path: Path, params: tuple[Any, Any], name: str) -> None:
    fake = agent()
    with Client(path, timeout=2, on_unavailable="raise") as client:
        connection = client._pool.connect(time.monotonic() + 2)
        connection._msgid = 7
        client._pool.give(connection)
        assert client.acquire(*params)
    assert fake.peers[0].raw.hex() == GOOD[name]["hex"]


DECISIONS: list[tuple[list[Any], dict[str, Any]]] = [
    ([False, 5, 0, 1, -1, 1, 0], {"allowed": False, "retry_after": None}),
    ([True, 5, 0, 1, 0, 4, 0], {"allowed": True, "source": Source.FALLBACK, "degraded": True}),
    ([True, 5, 0, 1, 0, 3, 1], {"shadow": True, "source": Source.STANDALONE}),
    ([True, 5, 0, 1, 0, 5, 0xFE], {"shadow": False, "source": Source.LIST}),
    ([True, 5, 0, 1, 0, 77, 0], {"source": Source.UNKNOWN, "degraded": False}),
    ([True, 5, 0, 1, 0, 0, 0, 2**64 - 1, {1: "later"}], {"allowed": True}),
]


@pytest.mark.parametrize(("result", "expected"), DECISIONS)
def test_decisions(agent: StartAgent, path: Path, result: list[Any], expected: dict[str, Any]) -> None:
    agent(answering(result))
    with Client(path, timeout=2, on_unavailable="raise") as client:
        decision = client.acquire("api", "k")
    assert {name: getattr(decision, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("item", "permit"),
    [
        (1, 1),
        (2**53 - 1, 2**53 - 1),
        (0, None),
        (-1, None),
        (None, None),
        (True, None),
        ("9", None),
        (9.0, None),
    ],
)
def test_permits(item: Any, permit: int | None) -> None:
    assert _wire.decision([*ALLOWED, item]).permit == permit


def test_trailing_elements_are_skipped_everywhere(agent: StartAgent, path: Path) -> None:
    results = {
        "acquire": [*ALLOWED, "x", ["y"]],
        "acquire_all": [True, [[*ALLOWED, 1, 2]], "x", None],
        "throttle": [0, 16, 15, -1, 2, "x", "y"],
    }

    def play(peer: Peer) -> None:
        while True:
            msgid, method, _ = peer.read()
            peer.send(msgpack.packb([1, msgid, None, results[method], "x", {"y": []}]))

    agent(play)
    with Client(path, timeout=2, on_unavailable="raise") as client:
        assert client.acquire("api", "k")
        assert client.acquire_all([("api", "k")])
        assert list(client.throttle("k", 15, 30, 60)) == [0, 16, 15, -1, 2]


ERRORS: list[tuple[list[Any], type[RlsidecarError]]] = [
    ([1, "bad"], ProtocolError),
    ([2, "no such method"], ProtocolError),
    ([3, "unknown policy: api"], UnknownPolicy),
    ([4, "cost"], InvalidRequest),
    ([5, "redis"], Unavailable),
    ([6, "busy"], Unavailable),
    ([7, "going"], Unavailable),
    ([8, "not yours"], NotPermitted),
    ([9, "bug"], Unavailable),
    ([4711, "from the future", {"more": 1}, 2], Unavailable),
    ([3, b"in bin", None], UnknownPolicy),
]


@pytest.mark.parametrize(("error", "kind"), ERRORS)
def test_error_codes(agent: StartAgent, path: Path, error: list[Any], kind: type[RlsidecarError]) -> None:
    agent(answering(None, error))
    with Client(path, timeout=2, on_unavailable="raise") as client, pytest.raises(RlsidecarError) as caught:
        client.acquire("api", "k")
    assert type(caught.value) is kind


@pytest.mark.parametrize(("error", "kind"), ERRORS)
def test_error_codes_in_mode_allow(
    agent: StartAgent, path: Path, error: list[Any], kind: type[RlsidecarError]
) -> None:
    agent(answering(None, error))
    with Client(path, timeout=2) as client:
        if issubclass(kind, Unavailable):
            assert client.acquire("api", "k").degraded
        else:
            with pytest.raises(kind):
                client.acquire("api", "k")


def test_the_connection_stays_usable_after_an_error_about_one_request(agent: StartAgent, path: Path) -> None:
    fake = agent(answering(None, [3, "unknown policy: api"]))
    with Client(path, timeout=2) as client:
        for _ in range(3):
            with pytest.raises(UnknownPolicy, match="unknown policy: api"):
                client.acquire("api", "k")
    assert len(fake.peers) == 1


WRONG_SHAPES: list[Any] = [
    None,
    "x",
    {},
    [],
    ALLOWED[:6],
    [1, *ALLOWED[1:]],
    [True, -1, 0, 0, 0, 0, 0],
    [True, 1.5, 0, 0, 0, 0, 0],
    [True, 1, True, 0, 0, 0, 0],
    [True, 1, 0, -1, 0, 0, 0],
    [True, 1, 0, 2**63, 0, 0, 0],
    [False, 1, 0, 0, -2, 0, 0],
    [True, 1, 0, 0, 0, None, 0],
]


@pytest.mark.parametrize("result", WRONG_SHAPES)
def test_a_decision_of_the_wrong_shape_closes(agent: StartAgent, path: Path, result: Any) -> None:
    fake = agent(answering(result))
    with Client(path, timeout=2, on_unavailable="raise") as client:
        for _ in range(2):
            with pytest.raises(ProtocolError, match="wrong shape"):
                client.acquire("api", "k")
    assert len(fake.peers) == 2


@pytest.mark.parametrize("error", ["x", [], [3], ["3", "x"], 3, {3: "x"}, [True, "x"]])
def test_an_error_of_the_wrong_shape(error: Any) -> None:
    with pytest.raises(ProtocolError, match="wrong shape"):
        failure(error)


def test_other_methods(agent: StartAgent, path: Path) -> None:
    results: dict[str, Any] = {
        "peek": ALLOWED,
        "refund": True,
        "reset": True,
        "release": False,
        "ping": "pong",
        "info": {"version": "1.2.3", "api_level": 1, "methods": ["acquire"]},
        "throttle": [1, 16, 0, 3, 30],
        "acquire_all": [False, [ALLOWED, DENIED]],
    }

    def play(peer: Peer) -> None:
        while True:
            msgid, method, _ = peer.read()
            peer.reply(msgid, results[method])

    fake = agent(play)
    with Client(path, timeout=2, on_unavailable="raise") as client:
        assert client.peek("api", "k", cost=0).remaining == 99
        assert client.refund("api", b"k", cost=2) is True
        assert client.reset("10/minute", "k") is True
        assert client.release(2**53 - 1) is False
        assert client.ping() is True
        assert client.info()["version"] == "1.2.3"
        limited, limit, remaining, retry_after, reset_after = client.throttle("k", 15, 30, 60, 1)
        both = client.acquire_all([("api", "k"), ("1/s", "j", 3)])
    assert (limited, limit, remaining, retry_after, reset_after) == (1, 16, 0, 3, 30)
    assert not both
    assert not both.degraded
    assert [decision.allowed for decision in both.decisions] == [True, False]
    assert [(method, params) for _, _, method, params in fake.requests] == [
        ("peek", ["api", "k", 0]),
        ("refund", ["api", b"k", 2]),
        ("reset", [[10, 60_000], "k"]),
        ("release", [2**53 - 1]),
        ("ping", []),
        ("info", []),
        ("throttle", ["k", 15, 30, 60, 1]),
        ("acquire_all", [[["api", "k", 1], [[1, 1000], "j", 3]]]),
    ]


def test_acquire_all_counts_the_decisions(agent: StartAgent, path: Path) -> None:
    agent(answering([True, [ALLOWED]]))
    with Client(path, timeout=2, on_unavailable="raise") as client, pytest.raises(ProtocolError):
        client.acquire_all([("a", "k"), ("b", "k")])


WAITING: dict[str, tuple[Callable[[Client, float], Any], Any, list[Any]]] = {
    "acquire": (lambda client, wait: client.acquire("api", "k", wait=wait), ALLOWED, ["api", "k", 1]),
    "acquire_all": (
        lambda client, wait: client.acquire_all([("api", "k")], wait=wait),
        [True, [ALLOWED]],
        [[["api", "k", 1]]],
    ),
}


@pytest.mark.parametrize("method", WAITING)
def test_wait_is_an_option_and_lengthens_the_budget(agent: StartAgent, path: Path, method: str) -> None:
    call, answer, asked = WAITING[method]
    held = threading.Event()

    def play(peer: Peer) -> None:
        msgid, _, params = peer.read()
        assert params == [*asked, {"wait_ms": 1500}]
        held.wait(0.15)
        peer.reply(msgid, answer)

    agent(play)
    with Client(path, timeout=0.05, on_unavailable="raise") as client:
        assert call(client, 1.5)


@pytest.mark.parametrize("method", WAITING)
def test_who_gives_up_waiting_closes_the_connection(agent: StartAgent, path: Path, method: str) -> None:
    """That is how the agent learns that the place in the queue is free."""
    call = WAITING[method][0]
    ended = threading.Event()

    def play(peer: Peer) -> None:
        peer.read()
        try:
            peer.read()
        finally:
            ended.set()

    agent(play)
    client = Client(path, timeout=0.02, on_unavailable="raise")
    before = time.monotonic()
    with pytest.raises(AgentTimeout):
        call(client, 0.1)
    assert time.monotonic() - before >= 0.12
    assert ended.wait(5)


@pytest.mark.parametrize(
    ("variable", "argument", "expected"),
    [(None, None, []), ("shop", None, [{"app": "shop"}]), ("shop", "till", [{"app": "till"}])],
)
def test_the_application_says_its_name(
    agent: StartAgent,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str | None,
    argument: str | None,
    expected: list[Any],
) -> None:
    if variable is not None:
        monkeypatch.setenv("RLSIDECAR_APP", variable)
    results = {"acquire": ALLOWED, "acquire_all": [True, [ALLOWED]]}

    def play(peer: Peer) -> None:
        while True:
            msgid, method, _ = peer.read()
            peer.reply(msgid, results[method])

    fake = agent(play)
    with Client(path, timeout=2, on_unavailable="raise", app=argument) as client:
        client.acquire("api", "k")
        client.acquire_all([("api", "k")])
        client.acquire("api", "k", wait=0.5)
    assert [params for _, _, _, params in fake.requests] == [
        ["api", "k", 1, *expected],
        [[["api", "k", 1]], *expected],
        ["api", "k", 1, {**(expected[0] if expected else {}), "wait_ms": 500}],
    ]


def test_str_with_broken_utf8_in_an_error_message(agent: StartAgent, path: Path) -> None:
    agent(saying(lambda msgid: response(msgid, None, [3, "XX"]).replace(b"XX", b"\xff\xfe")))
    with Client(path, timeout=2) as client, pytest.raises(UnknownPolicy):
        client.acquire("api", "k")
