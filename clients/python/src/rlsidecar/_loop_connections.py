"""The connections that one client has in one event loop."""

from __future__ import annotations

import asyncio
import errno
import os
import socket

from ._back_off import BackOff
from ._connection import BACKLOG_PAUSE, why_not
from ._errors import AgentNotRunning, AgentTimeout, Unavailable
from ._multiplexed import Connection

MAX_IDLE = 16


class LoopConnections:
    """Shared ones, which carry many calls each, and idle ones for whoever needs one alone.

    A call that may wait has a connection to itself: the agent knows by its end that the
    caller gave up, and frees the place in the queue. So has a hold: the agent takes the
    permits of a process that has no connection any more.
    """

    def __init__(self, path: str, back_off: BackOff, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.pid = os.getpid()
        self._path = path
        self._back_off = back_off
        self._shared: list[Connection] = []
        self._idle: list[Connection] = []

    def shared(self) -> Connection | None:
        """A connection for one more call, if one is open."""
        for connection in self._shared:
            if connection.open_to_calls:
                return connection
        return None

    def idle(self) -> Connection | None:
        """A connection to have alone, the one used last, if there is one."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
        return None

    def give(self, connection: Connection) -> None:
        """Take back what was had alone."""
        if len(self._idle) < MAX_IDLE and connection.quiet and not connection.closed:
            self._idle.append(connection)
        else:
            connection.close()

    async def connect(self, deadline: float, alone: bool) -> Connection:
        """A connection that nobody has used yet, or one that others opened meanwhile.

        Fails at once while the back-off lasts. A full backlog is waited for.
        """
        self._back_off.check(self._path)
        pause, longest = BACKLOG_PAUSE
        while (left := deadline - self.loop.time()) > 0:
            connection = self._connect()
            if connection is not None:
                self._back_off.succeeded()
                if not alone:
                    self._share(connection)
                return connection
            await asyncio.sleep(min(pause, left))
            pause = min(2 * pause, longest)
            if not alone and (connection := self.shared()) is not None:
                return connection
        raise AgentTimeout(f"could not connect to {self._path} in time")

    def close(self) -> None:
        """Close what nobody uses; what is in use closes when its calls have ended."""
        while (idle := self.idle()) is not None:
            idle.close()
        for connection in self._shared:
            connection.retire()
        self._shared.clear()

    def abandon(self) -> None:
        """The loop is closed, or another process's: only close the descriptors."""
        for connection in self._shared + self._idle:
            connection.abandon()

    def _share(self, connection: Connection) -> None:
        self._shared = [other for other in self._shared if other.open_to_calls or not other.quiet]
        self._shared.insert(0, connection)

    def _connect(self) -> Connection | None:
        """A new connection; None when the agent's backlog is full. On a Unix socket, neither takes time."""
        try:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as e:
            raise Unavailable(f"cannot open a socket: {e}") from None
        try:
            sock.setblocking(False)
            sock.connect(self._path)
            return Connection(sock, self.loop)
        except OSError as e:
            sock.close()
            if e.errno in (errno.EAGAIN, errno.EINPROGRESS):
                return None
            self._back_off.failed()
            raise AgentNotRunning(why_not(self._path, e)) from None
        except BaseException:
            sock.close()
            raise
