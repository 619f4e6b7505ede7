"""The connections of one client that are not in use, and when to try for a new one."""

from __future__ import annotations

import os
import random
import time
from collections import deque

from ._connection import Connection, open_connection
from ._errors import AgentNotRunning

MAX_IDLE = 64
BACK_OFF = (0.025, 1.0)

_random = random.SystemRandom()


class Pool:
    """Idle connections, the last one used on top.

    There is no lock: append and pop of a deque are atomic, and a connection that is
    popped belongs to its caller alone. So nothing can be left locked by a fork, a
    cancelled greenlet or a signal handler. Not bounded: connections in use; as many
    exist as calls run at once.

    Threads may race on the back-off's two fields; all that comes of it is a pause a
    little too short or one connect too many.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._idle: deque[Connection] = deque()
        self._failures = 0
        self._retry_at = 0.0

    def take(self) -> Connection | None:
        """An idle connection that this process opened itself."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if connection.pid == os.getpid():
                return connection
            connection.close()

    def give(self, connection: Connection) -> None:
        if len(self._idle) < MAX_IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    def connect(self, deadline: float) -> Connection:
        """A new connection. Fails at once while the back-off lasts."""
        if time.monotonic() < self._retry_at:
            raise AgentNotRunning(f"nobody was reached on {self._path}, next try is due shortly")
        try:
            connection = open_connection(self._path, deadline)
        except AgentNotRunning:
            self._back_off(time.monotonic())
            raise
        self._failures = 0
        return connection

    def close_idle(self) -> None:
        while (connection := self.take()) is not None:
            connection.close()

    def _back_off(self, now: float) -> None:
        if now < self._retry_at:
            return
        shortest, longest = BACK_OFF
        self._retry_at = now + _random.uniform(0, min(longest, shortest * 2**self._failures))
        self._failures = min(self._failures + 1, 10)
