"""One connection to the agent, one call at a time."""

from __future__ import annotations

import errno
import os
import socket
import stat
import time
import weakref
from typing import Any

from ._errors import AgentNotRunning, AgentTimeout, ProtocolError, Unavailable
from ._inbox import Inbox
from ._wire import (
    MAX_MESSAGE,
    MAX_MSGID,
    REQUEST,
    first_msgid,
    is_notification,
    is_reply_to,
    new_packer,
)

_TIMER_SLACK = 0.001
BACKLOG_PAUSE = (0.0005, 0.005)
IN_THE_MIDDLE = " in the middle of a reply"


class Lost(Unavailable):
    """The connection ended before a byte of the reply: on a reused one, ask again."""


class Connection:
    """A connected socket and what was read from it so far.

    The bytes on the socket are a promise: nothing lies in it between two calls but
    notifications. Whoever breaks off between the write and the end of the read
    leaves a reply behind that the next caller would take for its own. So a call
    either ends with its reply, or the connection is closed; the caller of `call`
    does that for every exception, whatever its base class. The msgid is the second
    line of defence: it starts at random, so that a reply to somebody else does not
    happen to carry the number that is waited for.

    After a fork the socket belongs to the parent, which goes on using it. The child
    closes its descriptor and nothing more: shutdown() would end the parent's
    connection too.
    """

    __slots__ = ("__weakref__", "_armed", "_inbox", "_msgid", "_packer", "_sock", "pid")

    def __init__(self, sock: socket.socket) -> None:
        self.pid = os.getpid()
        self._sock = sock
        self._armed = 0.0  # the socket's timeout, in seconds
        self._msgid = first_msgid()
        self._packer = new_packer()
        self._inbox = Inbox()
        _live.add(self)

    def close(self) -> None:
        self._sock.close()

    def call(self, method: str, params: tuple[Any, ...], deadline: float) -> tuple[Any, Any]:
        """Send one request and return (error, result) of its reply.

        deadline: on time.monotonic. Raises Unavailable; the caller must close the
        connection on any exception.
        """
        msgid = self._msgid
        self._msgid = (msgid + 1) & MAX_MSGID
        request = self._packer.pack((REQUEST, msgid, method, params))
        try:
            if not self._arm(deadline):
                raise AgentTimeout("the budget was spent before the request could be sent")
            self._sock.sendall(request)
        except TimeoutError:
            raise AgentTimeout("the agent does not read its requests") from None
        except OSError as e:
            raise Lost(f"the connection to the agent broke: {e}") from None
        return self._receive(msgid, deadline)

    def _receive(self, msgid: int, deadline: float) -> tuple[Any, Any]:
        inbox = self._inbox
        before = inbox.received
        while True:
            try:
                in_time = self._arm(deadline)
                data = self._sock.recv(inbox.room() if in_time else inbox.room(MAX_MESSAGE))
            except TimeoutError:
                continue
            except BlockingIOError:
                raise AgentTimeout("the agent did not answer in time") from None
            except OSError as e:
                raise self._broken(before, f"the connection to the agent broke: {e}") from None
            if not data:
                raise self._broken(before, "the agent closed the connection")
            reply = self._reply_among(inbox.take(data), msgid)
            if reply is not None:
                return reply[2], reply[3]
            if not in_time:
                raise AgentTimeout("the agent's answer was not complete in time")

    def _arm(self, deadline: float) -> bool:
        """Set the socket's timeout to what is left. False: nothing is, reads do not block.

        A timeout at most a millisecond too long is left as it is, and a new one is set
        half of that too long, which does for the calls to come: setting it is a system
        call.
        """
        left = deadline - time.monotonic()
        if left <= 0:
            self._sock.settimeout(0.0)
            self._armed = 0.0
            return False
        if not left <= self._armed <= left + _TIMER_SLACK:
            self._armed = left + _TIMER_SLACK / 2
            self._sock.settimeout(self._armed)
        return True

    def _reply_among(self, messages: list[list[Any]], msgid: int) -> list[Any] | None:
        """The reply, once it is there whole and nothing but notifications surrounds it."""
        reply = None
        for message in messages:
            if reply is None and is_reply_to(msgid, message):
                reply = message
            elif not is_notification(message):
                raise ProtocolError(f"the agent's message answers no call: {message!r:.200}")
        if reply is not None and self._inbox.partial:
            raise ProtocolError("the agent's reply is followed by stray bytes")
        return reply

    def _broken(self, before: int, message: str) -> Unavailable:
        return Lost(message) if self._inbox.received == before else Unavailable(message + IN_THE_MIDDLE)


def open_connection(path: str, deadline: float) -> Connection:
    """Connect to the socket at path.

    Raises AgentNotRunning when nobody can be reached there, AgentTimeout when the
    agent's backlog stays full until the deadline.
    """
    try:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError as e:
        raise Unavailable(f"cannot open a socket: {e}") from None
    try:
        _connect(sock, path, deadline)
        return Connection(sock)
    except BaseException:
        sock.close()
        raise


def _connect(sock: socket.socket, path: str, deadline: float) -> None:
    pause, longest = BACKLOG_PAUSE
    while (left := deadline - time.monotonic()) > 0:
        sock.settimeout(left)
        try:
            sock.connect(path)
            return
        except BlockingIOError:
            # EAGAIN: the agent is there and its backlog is full.
            time.sleep(min(pause, left))
            pause = min(2 * pause, longest)
        except TimeoutError:
            break
        except OSError as e:
            raise AgentNotRunning(why_not(path, e)) from None
    raise AgentTimeout(f"could not connect to {path} in time")


def why_not(path: str, error: OSError) -> str:
    if error.errno == errno.ECONNREFUSED:
        try:
            is_socket = stat.S_ISSOCK(os.stat(path).st_mode)
        except OSError:
            is_socket = True
        if not is_socket:
            return f"{path} is not a socket: set RLSIDECAR_ADDRESS to the agent's socket"
        return f"nobody listens on {path}"
    if error.errno == errno.EACCES:
        return f"permission denied on {path}: this user must be in the group of the agent's socket"
    return f"cannot connect to {path}: {error.strerror or error}"


_live: weakref.WeakSet[Connection] = weakref.WeakSet()


def _close_in_child() -> None:
    for connection in list(_live):
        connection.close()
    _live.clear()


os.register_at_fork(after_in_child=_close_in_child)
