"""The connections of one client that are not in use."""

from __future__ import annotations

import os
from collections import deque

from ._back_off import BackOff
from ._connection import Connection, open_connection
from ._errors import AgentNotRunning

MAX_IDLE = 64


class Pool:
    """Idle connections, the last one used on top.

    There is no lock: append and pop of a deque are atomic, and a connection that is
    popped belongs to its caller alone. So nothing can be left locked by a fork, a
    cancelled greenlet or a signal handler. Not bounded: connections in use; as many
    exist as calls run at once.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._idle: deque[Connection] = deque()
        self._back_off = BackOff()

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
        self._back_off.check(self.path)
        try:
            connection = open_connection(self.path, deadline)
        except AgentNotRunning:
            self._back_off.failed()
            raise
        self._back_off.succeeded()
        return connection

    def close_idle(self) -> None:
        while (connection := self.take()) is not None:
            connection.close()
