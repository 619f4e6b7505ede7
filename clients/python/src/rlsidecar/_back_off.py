"""When to try for a new connection, after nobody was there to connect to."""

from __future__ import annotations

import random
import time

from ._errors import AgentNotRunning

BACK_OFF = (0.025, 1.0)

_random = random.SystemRandom()


class BackOff:
    """A random pause after each failure to connect, from at most 25 ms up to at most 1 s.

    Threads may race on the two fields; all that comes of it is a pause a little too
    short or one connect too many.
    """

    __slots__ = ("_failures", "_retry_at")

    def __init__(self) -> None:
        self._failures = 0
        self._retry_at = 0.0

    def check(self, path: str) -> None:
        """Raises AgentNotRunning while the pause lasts."""
        if time.monotonic() < self._retry_at:
            raise AgentNotRunning(f"nobody was reached on {path}, next try is due shortly")

    def failed(self) -> None:
        now = time.monotonic()
        if now < self._retry_at:
            return
        shortest, longest = BACK_OFF
        self._retry_at = now + _random.uniform(0, min(longest, shortest * 2**self._failures))
        self._failures = min(self._failures + 1, 10)

    def succeeded(self) -> None:
        self._failures = 0
