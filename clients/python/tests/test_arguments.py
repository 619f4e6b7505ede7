"""What may be passed: limits, keys, costs, times, and the settings of a client."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from conftest import StartAgent
from fake_agent import answering

from rlsidecar import Client, Decision, InvalidRequest, Limit, RateLimited, Source
from rlsidecar._arguments import check_key, check_limit, wait_milliseconds
from rlsidecar._settings import DEFAULT_ADDRESS

NOWHERE = "/nonexistent/rlsidecar.sock"

LIMITS: list[tuple[str | Limit, tuple[str | tuple[int | str, ...], int | None]]] = [
    ("api", ("api", None)),
    ("shop/checkout", ("shop/checkout", None)),
    ("10/fortnight", ("10/fortnight", None)),
    ("10/minute/ip", ("10/minute/ip", None)),
    ("x10/minute", ("x10/minute", None)),
    ("10/", ("10/", None)),
    ("10/minute", ((10, 60_000), 10)),
    ("10 / 1 min", ((10, 60_000), 10)),
    ("1_000/2hours", ((1000, 7_200_000), 1000)),
    ("5/250ms", ((5, 250), 5)),
    ("5/10s", ((5, 10_000), 5)),
    ("1/d", ((1, 86_400_000), 1)),
    ("7/m", ((7, 60_000), 7)),
    (Limit.per_second(10), ((10, 1000), 10)),
    (Limit.per_minute(60, burst=10), ((60, 60_000, 10), 10)),
    (Limit.per_hour(2), ((2, 3_600_000), 2)),
    (Limit.per_day(2), ((2, 86_400_000), 2)),
    (Limit(3, 0.25), ((3, 250), 3)),
    (Limit(3, timedelta(milliseconds=1)), ((3, 1), 3)),
    (Limit.per_minute(60, algorithm="sliding_window"), ((60, 60_000, 0, "sliding_window"), 60)),
    (Limit.per_second(60, algorithm="fixed_window"), ((60, 1000, 0, "fixed_window"), 60)),
    (Limit.per_hour(9, 5, algorithm="leaky_bucket"), ((9, 3_600_000, 5, "leaky_bucket"), 5)),
    (Limit.per_day(9, algorithm="token_bucket"), ((9, 86_400_000, 0, "token_bucket"), 9)),
    (Limit(10_000, 1, algorithm="sliding_log"), ((10_000, 1000, 0, "sliding_log"), 10_000)),
    (Limit.concurrency(3, max_hold=60), ((3, 60_000, 0, "concurrency"), 3)),
    (Limit.concurrency(3, max_hold=timedelta(minutes=10)), ((3, 600_000, 0, "concurrency"), 3)),
]


@pytest.mark.parametrize(("limit", "expected"), LIMITS)
def test_limits(limit: str | Limit, expected: tuple[Any, Any]) -> None:
    assert check_limit(limit) == expected


@pytest.mark.parametrize(
    "limit", ["", "p" * 129, "\udc80", "0/minute", "10/0s", "9" * 17 + "/s", 10, None, b"api"]
)
def test_limits_refused(limit: Any) -> None:
    with pytest.raises(InvalidRequest):
        check_limit(limit)


@pytest.mark.parametrize(
    ("count", "period", "burst"),
    [
        (0, 1, None),
        (-1, 1, None),
        (True, 1, None),
        (1.5, 1, None),
        (2**53, 1, None),
        (1, 0, None),
        (1, -1, None),
        (1, 0.0015, None),
        (1, float("nan"), None),
        (1, float("inf"), None),
        (1, "minute", None),
        (1, 1, 0),
    ],
)
def test_limit_ranges(count: Any, period: Any, burst: Any) -> None:
    with pytest.raises(ValueError, match=r"count|period|burst"):
        Limit(count, period, burst)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Limit(1, 1, algorithm="leaky"), "algorithm 'leaky': there are token_bucket, leaky_bucket, "),  # type: ignore[arg-type]
        (lambda: Limit(1, 1, 2, "sliding_window"), "burst 2: a sliding_window has none, leave it out"),
        (lambda: Limit(1, 1, 1, "concurrency"), "burst 1: a concurrency has none"),
        (lambda: Limit(10_001, 1, algorithm="sliding_log"), "count 10001: a sliding_log allows 1 to 10000"),
        (lambda: Limit.concurrency(0, max_hold=1), "count 0: allowed are"),
        (lambda: Limit.concurrency(1, max_hold=0), "max_hold 0: must be whole milliseconds"),
        (lambda: Limit.concurrency(1, max_hold="1m"), "max_hold '1m': must be a timedelta"),  # type: ignore[arg-type]
    ],
)
def test_algorithms_refused(make: Callable[[], Limit], message: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{message}"):
        make()


def test_limits_are_values() -> None:
    assert Limit(60, 60) == Limit.per_minute(60)
    assert len({Limit(60, 60), Limit.per_minute(60), Limit.per_minute(60, 10)}) == 2
    assert Limit.concurrency(3, max_hold=60) != Limit.per_minute(3)


@pytest.mark.parametrize("key", ["k", "k" * 1024, "ü" * 512, b"\xff", "\N{GRINNING FACE}"])
def test_keys(key: str | bytes) -> None:
    assert check_key(key) == key


@pytest.mark.parametrize("key", ["", b"", "k" * 1025, "ü" * 513, b"k" * 1025, "\ud800", 42, None])
def test_keys_refused(key: Any) -> None:
    with pytest.raises(InvalidRequest, match="key"):
        check_key(key)


@pytest.mark.parametrize(("seconds", "expected"), [(0.0005, 1), (0.25, 250), (0.1 + 0.2, 300), (2, 2000)])
def test_wait_is_rounded_up(seconds: float, expected: int) -> None:
    assert wait_milliseconds(seconds) == expected


BAD_CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("acquire", ("api", "k"), {"cost": 0}),
    ("acquire", ("api", "k"), {"cost": -1}),
    ("acquire", ("api", "k"), {"cost": 2**53}),
    ("acquire", ("api", "k"), {"cost": 1.0}),
    ("acquire", ("api", "k"), {"cost": True}),
    ("acquire", ("api", "k"), {"wait": -1}),
    ("acquire", ("api", "k"), {"wait": float("nan")}),
    ("acquire", ("api", "k"), {"wait": 60.1}),
    ("acquire_all", ([("api", "k")],), {"wait": -1}),
    ("release", (0,), {}),
    ("release", (2**53,), {}),
    ("release", (True,), {}),
    ("release", ("7",), {}),
    ("acquire", ("api", "k"), {"timeout": 0}),
    ("acquire", ("api", "k"), {"timeout": float("inf")}),
    ("acquire", ("api", "k"), {"timeout": "1"}),
    ("acquire", ("api", 1), {}),
    ("peek", ("api", "k"), {"cost": -1}),
    ("refund", ("api", "k"), {"cost": 0}),
    ("reset", ("", "k"), {}),
    ("throttle", ("k", -1, 1, 1), {}),
    ("throttle", ("k", 1, 0, 1), {}),
    ("throttle", ("k", 1, 1, 0), {}),
    ("throttle", ("k", 1, 1, 1, -1), {}),
    ("acquire_all", ([],), {}),
    ("acquire_all", ([("api", "k")] * 33,), {}),
    ("acquire_all", ([("api",)],), {}),
    ("acquire_all", (["ab"],), {}),
    ("acquire_all", ([("api", "k", 0)],), {}),
]


@pytest.mark.parametrize("mode", ["allow", "deny", "raise"])
@pytest.mark.parametrize(("method", "args", "options"), BAD_CALLS)
def test_c22_wrong_calls_raise_with_and_without_agent(
    mode: Any, method: str, args: tuple[Any, ...], options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequest):
        getattr(Client(NOWHERE, on_unavailable=mode), method)(*args, **options)


@pytest.mark.parametrize("cost", [11, 2**31, 2**53 - 1])
def test_c22_never_allowed_above_capacity(agent: StartAgent, path: Path, cost: int) -> None:
    without = Client(NOWHERE, on_unavailable="allow")
    for limit in ("10/minute", Limit.per_minute(600, burst=10)):
        decision = without.acquire(limit, "k", cost=cost)
        assert not decision
        assert (decision.limit, decision.retry_after, decision.degraded) == (10, None, True)
        assert not without.acquire_all([("api", "k"), (limit, "k", cost)])
    assert without.throttle("k", 9, 1, 1, cost).limited
    fake = agent(answering([False, 10, 10, 0, -1, 0, 0]))
    with Client(path, timeout=2, on_unavailable="raise") as client:
        decision = client.acquire("api", "k", cost=cost)
    assert not decision
    assert decision.retry_after is None
    assert fake.requests[0][3] == ["api", "k", cost]


def test_c30_address_order(agent: StartAgent, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Client()._pool.path == DEFAULT_ADDRESS.removeprefix("unix://")
    monkeypatch.setenv("RLSIDECAR_ADDRESS", "")
    assert Client()._pool.path == DEFAULT_ADDRESS.removeprefix("unix://")
    monkeypatch.setenv("RLSIDECAR_ADDRESS", "unix:///elsewhere.sock")
    assert Client()._pool.path == "/elsewhere.sock"
    agent(answering("pong"))
    for address in (path, str(path), f"unix://{path}"):
        with Client(address, timeout=2) as client:
            assert client.ping()


@pytest.mark.parametrize(
    "address",
    [
        "tcp://127.0.0.1:80",
        "http://x",
        "unix:relative",
        "unix://relative",
        "unix://",
        "unix:///a\0b",
        "",
        "/" + "x" * 107,
    ],
)
def test_c30_bad_addresses(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="address"):
        Client(address)
    if address and "\0" not in address:
        monkeypatch.setenv("RLSIDECAR_ADDRESS", address)
        with pytest.raises(ValueError, match="address"):
            Client()


def test_c10_the_longest_path() -> None:
    assert Client("/" + "x" * 106).acquire("api", "k").degraded
    with pytest.raises(ValueError, match="108 bytes, at most 107"):
        Client("/" + "é" * 53 + "x")


def test_c30_other_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Client()._questions.timeout == 0.05
    assert Client()._questions.on_unavailable == "allow"
    monkeypatch.setenv("RLSIDECAR_TIMEOUT_MS", "20")
    monkeypatch.setenv("RLSIDECAR_ON_UNAVAILABLE", "deny")
    assert Client()._questions.timeout == 0.02
    assert Client(timeout=1)._questions.timeout == 1
    assert not Client(NOWHERE).acquire("api", "k")
    assert Client(NOWHERE, on_unavailable="allow").acquire("api", "k")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("TIMEOUT_MS", "0"),
        ("TIMEOUT_MS", "-5"),
        ("TIMEOUT_MS", "50ms"),
        ("TIMEOUT_MS", "nan"),
        ("ON_UNAVAILABLE", "maybe"),
        ("ON_UNAVAILABLE", "shrug"),
        ("DISABLE", "maybe"),
        ("APP", "a" * 129),
        ("APP", "\udc80"),
    ],
)
def test_c30_bad_environment(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"RLSIDECAR_{name}", text)
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        Client()


@pytest.mark.parametrize("name", ["", "a" * 129, "é" * 65, "a\n", "\ud800", 7])
def test_bad_names_of_the_application(name: Any) -> None:
    with pytest.raises(ValueError, match=r"app .*: write a name of 1 to 128 bytes"):
        Client(app=name)


def test_an_unknown_mode_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'maybe': there are allow, deny, local, raise"):
        Client(on_unavailable="maybe")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "disabled"), [("1", True), ("True", True), ("on", True), ("0", False), ("", False)]
)
def test_disable(
    agent: StartAgent, path: Path, monkeypatch: pytest.MonkeyPatch, text: str, disabled: bool
) -> None:
    fake = agent(answering([False, 1, 0, 1, 1, 0, 0]))
    monkeypatch.setenv("RLSIDECAR_DISABLE", text)
    with Client(path, timeout=2, on_unavailable="raise") as client:
        decision = client.acquire("api", "k")
    assert (decision.allowed, decision.degraded) == (disabled, disabled)
    assert len(fake.requests) == (0 if disabled else 1)


GUARDED_IMPORT = """
import sys
sys.addaudithook(lambda event, args: sys.exit(event) if event.startswith("socket.") else None)
import rlsidecar
rlsidecar.Client(on_unavailable="raise")
rlsidecar.Client("/nonexistent", on_unavailable="raise").close()
"""


def test_c29_import_and_construction_touch_no_socket() -> None:
    run = subprocess.run(
        [sys.executable, "-c", GUARDED_IMPORT],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_decisions_and_their_exception_survive_pickling() -> None:
    decision = Decision(False, 10, 0, 1000, -1, Source.REDIS, shadow=True)
    assert pickle.loads(pickle.dumps(decision)) == decision
    error = pickle.loads(pickle.dumps(RateLimited(decision)))
    assert error.decision == decision
    assert str(error) == "rate limited: can never be allowed"
