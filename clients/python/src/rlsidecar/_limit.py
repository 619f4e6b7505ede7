"""Limits that the caller brings along, and telling them from policy names."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Literal, get_args

from ._errors import InvalidRequest

MAX_NUMBER = 2**53 - 1
MAX_POLICY_BYTES = 128

MAX_LOGGED = 10_000  # the count of a sliding_log, which remembers each permit

Inline = tuple[int | str, ...]
Algorithm = Literal[
    "token_bucket", "leaky_bucket", "fixed_window", "sliding_window", "sliding_log", "concurrency"
]

_WITH_BURST = ("token_bucket", "leaky_bucket")
_MILLISECOND = timedelta(milliseconds=1)
_MILLISECONDS = {
    "ms": 1,
    "millisecond": 1,
    "s": 1000,
    "sec": 1000,
    "second": 1000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
}
_TEXT = re.compile(
    r"([0-9][0-9_]*)\s*/\s*([0-9][0-9_]*)?\s*"
    r"(ms|milliseconds?|s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)"
)


@dataclass(frozen=True, slots=True)
class Limit:
    """`count` permits per `period`, of which at most `burst` can be taken at once.

    count:     1..2**53-1; of a sliding_log 1..10,000
    period:    a timedelta, or seconds; whole milliseconds, at least 1 ms
    burst:     the capacity of the bucket, 1..2**53-1; None: the same as count. Only a
               token_bucket and a leaky_bucket have one
    algorithm: how permits come back; None: the agent's default, token_bucket. For
               "concurrency" write `Limit.concurrency`

    The agent has narrower ranges of its own and answers InvalidRequest beyond them.
    Raises InvalidRequest, which is a ValueError.
    """

    count: int
    period: timedelta | float
    burst: int | None = None
    algorithm: Algorithm | None = None
    wire: Inline = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_number("count", self.count)
        if self.burst is not None:
            _check_number("burst", self.burst)
        if self.algorithm is not None:
            _check_algorithm(self.algorithm, self.count, self.burst)
        period = _timedelta("max_hold" if self.algorithm == "concurrency" else "period", self.period)
        object.__setattr__(self, "period", period)
        object.__setattr__(self, "wire", self._on_the_wire(period))

    def _on_the_wire(self, period: timedelta) -> Inline:
        wire = (self.count, period // _MILLISECOND)
        if self.algorithm is not None:
            return (*wire, self.burst or 0, self.algorithm)
        return wire if self.burst is None else (*wire, self.burst)

    @property
    def capacity(self) -> int:
        """The most that one call can take."""
        return self.count if self.burst is None else self.burst

    @classmethod
    def per_second(cls, count: int, burst: int | None = None, *, algorithm: Algorithm | None = None) -> Limit:
        return cls(count, timedelta(seconds=1), burst, algorithm)

    @classmethod
    def per_minute(cls, count: int, burst: int | None = None, *, algorithm: Algorithm | None = None) -> Limit:
        return cls(count, timedelta(minutes=1), burst, algorithm)

    @classmethod
    def per_hour(cls, count: int, burst: int | None = None, *, algorithm: Algorithm | None = None) -> Limit:
        return cls(count, timedelta(hours=1), burst, algorithm)

    @classmethod
    def per_day(cls, count: int, burst: int | None = None, *, algorithm: Algorithm | None = None) -> Limit:
        return cls(count, timedelta(days=1), burst, algorithm)

    @classmethod
    def concurrency(cls, count: int, *, max_hold: timedelta | float) -> Limit:
        """`count` permits held at once; one not released after `max_hold` is taken back."""
        return cls(count, max_hold, algorithm="concurrency")


def _check_number(name: str, value: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_NUMBER:
        raise InvalidRequest(f"{name} {value!r}: allowed are whole numbers from 1 to 2**53-1")


def _check_algorithm(algorithm: str, count: int, burst: int | None) -> None:
    there_are = get_args(Algorithm)
    if algorithm not in there_are:
        raise InvalidRequest(f"algorithm {algorithm!r}: there are {', '.join(there_are)}")
    if burst is not None and algorithm not in _WITH_BURST:
        raise InvalidRequest(f"burst {burst}: a {algorithm} has none, leave it out")
    if algorithm == "sliding_log" and count > MAX_LOGGED:
        raise InvalidRequest(
            f"count {count}: a sliding_log allows 1 to {MAX_LOGGED}; a sliding_window has no such bound"
        )


def _timedelta(name: str, period: timedelta | float) -> timedelta:
    try:
        exact = period if isinstance(period, timedelta) else timedelta(seconds=period)
    except (TypeError, ValueError, OverflowError):
        raise InvalidRequest(f"{name} {period!r}: must be a timedelta or a number of seconds") from None
    if exact < _MILLISECOND or exact % _MILLISECOND:
        raise InvalidRequest(f"{name} {period!r}: must be whole milliseconds, at least one")
    return exact


@lru_cache(maxsize=1024)
def from_text(text: str) -> tuple[str | Inline, int | None]:
    """What goes on the wire for a string, and the capacity where that says it.

    "10/minute", "5 / 250ms" and "1_000/2 hours" are inline limits; all other
    strings are policy names, whatever characters they are made of.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        return _policy_name(text), None
    count, times, unit = match.groups()
    per_unit = _MILLISECONDS.get(unit) or _MILLISECONDS[unit.removesuffix("s")]
    limit = Limit(_number(count), timedelta(milliseconds=_number(times or "1") * per_unit))
    return limit.wire, limit.capacity


def _number(digits: str) -> int:
    if len(digits) > 16:
        raise InvalidRequest(f"number {digits[:16]}...: at most 16 digits are allowed in a limit")
    return int(digits.replace("_", ""))


def _policy_name(name: str) -> str:
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidRequest(f"policy {name!r}: is not valid Unicode") from None
    if not 1 <= size <= MAX_POLICY_BYTES:
        raise InvalidRequest(f"policy {name[:40]!r}: has {size} bytes, allowed are 1 to {MAX_POLICY_BYTES}")
    return name
