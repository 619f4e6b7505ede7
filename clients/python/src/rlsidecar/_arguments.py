"""What a caller may pass, checked before a byte is sent.

The agent checks the same bounds. Checking here as well makes a mistake look the
same on a developer's machine without an agent as it does in production.
"""

from __future__ import annotations

import math

from ._errors import InvalidRequest
from ._limit import MAX_NUMBER, Inline, Limit, from_text

MAX_KEY_BYTES = 1024
MAX_ITEMS = 32
MAX_SECONDS = 3600.0
MAX_WAIT = 60.0
MAX_APP_BYTES = 128

Key = str | bytes


def check_limit(limit: str | Limit) -> tuple[str | Inline, int | None]:
    """The wire form of a limit, and its capacity where the caller's side knows it."""
    if isinstance(limit, str):
        return from_text(limit)
    if isinstance(limit, Limit):
        return limit.wire, limit.capacity
    raise InvalidRequest(f"limit {limit!r}: must be a policy name, a Limit, or a string like '10/minute'")


def check_key(key: Key) -> Key:
    if isinstance(key, str):
        try:
            size = len(key.encode())
        except UnicodeEncodeError:
            raise InvalidRequest(f"key {key!r}: is not valid Unicode, pass it as bytes") from None
    elif isinstance(key, bytes):
        size = len(key)
    else:
        raise InvalidRequest(f"key {key!r}: must be str or bytes, write str({key!r})")
    if not 1 <= size <= MAX_KEY_BYTES:
        raise InvalidRequest(f"key {key[:40]!r}: has {size} bytes, allowed are 1 to {MAX_KEY_BYTES}")
    return key


def check_cost(cost: int, least: int = 1) -> int:
    if type(cost) is int and least <= cost <= MAX_NUMBER:
        return cost
    return check_number("cost", cost, least)


def check_number(name: str, value: int | None, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MAX_NUMBER:
        raise InvalidRequest(f"{name} {value!r}: allowed are whole numbers from {least} to 2**53-1")
    return value


def check_timeout(seconds: float) -> float:
    if not _is_number(seconds) or not 0 < seconds <= MAX_SECONDS:
        raise InvalidRequest(f"timeout {seconds!r}: allowed are more than 0 to {MAX_SECONDS:.0f} seconds")
    return seconds


def wait_milliseconds(seconds: float) -> int:
    if not _is_number(seconds) or not 0 <= seconds <= MAX_WAIT:
        raise InvalidRequest(f"wait {seconds!r}: allowed are 0 to {MAX_WAIT:.0f} seconds")
    return milliseconds(seconds)


def milliseconds(seconds: float) -> int:
    """Rounded up, but for what a float is inexact by."""
    return math.ceil(round(seconds * 1000, 3))


def _is_number(value: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
