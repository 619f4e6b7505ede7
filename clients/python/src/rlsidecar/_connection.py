"""One connection to the agent, one call at a time."""

from __future__ import annotations

import _socket
import errno
import os
import socket
import stat
import struct
import time
import weakref
from typing import Any

from ._errors import AgentNotRunning, AgentTimeout, ProtocolError, Unavailable
from ._inbox import Inbox
from ._wire import (
    MAX_MSGID,
    REQUEST,
    first_msgid,
    is_notification,
    is_reply_to,
    new_packer,
)

_USUAL_REPLY = 448  # bytes to make room for at first: with more, Python asks malloc, which takes microseconds
_KERNEL_LATE = 0.01  # seconds that a time-out of the kernel may come too late
_SET_SLACK = 0.001
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

    __slots__ = ("__weakref__", "_armed", "_inbox", "_msgid", "_packer", "_plain", "_sock", "pid")

    def __init__(self, sock: socket.socket) -> None:
        self.pid = os.getpid()
        self._sock = sock
        self._plain = isinstance(sock, _socket.socket)  # not gevent's, whose timeouts are its own
        self._armed = (False, 0.0)  # whether by the kernel, and the seconds
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
        left = deadline - time.monotonic()
        if left <= 0:
            raise AgentTimeout("the budget was spent before the request could be sent")
        try:
            self._arm(left)
            self._sock.sendall(request)
        except (TimeoutError, BlockingIOError):
            raise AgentTimeout("the agent does not read its requests") from None
        except OSError as e:
            raise Lost(f"the connection to the agent broke: {e}") from None
        return self._receive(msgid, deadline)

    def _receive(self, msgid: int, deadline: float) -> tuple[Any, Any]:
        inbox = self._inbox
        before = inbox.received
        in_time = True
        room = _USUAL_REPLY
        while True:
            try:
                data = self._sock.recv(room)
            except (TimeoutError, BlockingIOError):
                if not in_time:
                    raise AgentTimeout("the agent did not answer in time") from None
            except OSError as e:
                raise self._broken(before, f"the connection to the agent broke: {e}") from None
            else:
                if not data:
                    raise self._broken(before, "the agent closed the connection")
                reply = self._reply_among(inbox.take(data), msgid)
                if reply is not None:
                    return reply[2], reply[3]
                if not in_time:
                    raise AgentTimeout("the agent's answer was not complete in time")
            in_time = self._arm_exactly(deadline)
            room = inbox.room()

    def _arm(self, left: float) -> None:
        """Have the send and the first read end when `left` seconds are over, or a little before.

        Python's own timeouts cost a poll() before each send and read. The kernel's cost
        nothing, but are late by some of its ticks; so they are set to end before that,
        and an exact one does the rest. Setting any is a system call: what was set for
        the last call is left, if it is not too long and less than a millisecond short.
        """
        by_kernel = self._plain and left > 2 * _KERNEL_LATE
        least = left - _KERNEL_LATE if by_kernel else left - _SET_SLACK
        armed_by_kernel, seconds = self._armed
        if armed_by_kernel is by_kernel and least - _SET_SLACK <= seconds <= least:
            return
        self._armed = by_kernel, least
        if by_kernel:
            self._sock.settimeout(None)
            timeval = struct.pack("@ll", int(least), int(least % 1 * 1e6))
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval)
        else:
            self._sock.settimeout(max(least, 0.0005))

    def _arm_exactly(self, deadline: float) -> bool:
        """Have the next read end at the deadline. False: it is over, the next read does not block."""
        left = max(0.0, deadline - time.monotonic())
        self._sock.settimeout(left)
        self._armed = False, -1.0
        return left > 0

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
