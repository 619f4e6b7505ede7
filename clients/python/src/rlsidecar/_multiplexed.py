"""One connection of an event loop to the agent, with many calls in flight.

Measured against a connection per call in flight (bench/multiplexed.py): alone a
call takes as long either way, and with 64 tasks calling, one connection answers 1.4
to 1.7 times as many, because one wake-up of the loop then reads many replies.
"""

from __future__ import annotations

import asyncio
import os
import socket
import weakref
from functools import partial
from typing import Any

from ._connection import IN_THE_MIDDLE, Lost
from ._errors import AgentTimeout, ProtocolError, Unavailable
from ._inbox import Inbox
from ._wire import (
    MAX_MSGID,
    NOTIFICATION,
    REQUEST,
    first_msgid,
    is_notification,
    is_response,
    new_packer,
    permits,
)

MAX_IN_FLIGHT = 512
MAX_LATE = 64


class Connection:
    """A connected socket, watched by the loop, and who waits for what on it.

    A caller that gives up, by a time-out or because its task is cancelled, leaves its
    msgid in `_late`: the reply to it is thrown away when it comes, and a permit in it
    goes back. So nobody is handed another's answer, and the others on the connection
    notice nothing. An answer to no call at all, or one of the wrong shape, ends the
    connection for all. Every method runs in the loop's thread.

    After a fork the loop and the socket belong to the parent. The child only closes its
    descriptor: telling the loop would reach through to the parent's epoll.
    """

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self.pid = os.getpid()
        self.closed = False
        self._sock = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._msgid = first_msgid()
        self._packer = new_packer()
        self._inbox = Inbox()
        self._waiting: dict[int, asyncio.Future[list[Any]]] = {}
        self._late: set[int] = set()
        self._spoken_to: set[int] = set()  # waited for when a notification came: not to be asked again
        self._unsent = bytearray()
        self._retired = False
        loop.add_reader(self._fd, self._readable)
        _live.add(self)

    @property
    def quiet(self) -> bool:
        """Whether no reply is due."""
        return not (self._waiting or self._late or self._unsent)

    @property
    def open_to_calls(self) -> bool:
        return not (self.closed or self._retired) and len(self._waiting) + len(self._late) < MAX_IN_FLIGHT

    async def call(self, method: str, params: tuple[Any, ...], deadline: float) -> tuple[Any, Any]:
        """Send one request and return (error, result) of its reply.

        deadline: on the loop's clock. Raises Unavailable. May be cancelled at any time.
        """
        msgid = self._msgid
        self._msgid = (msgid + 1) & MAX_MSGID
        self._send(self._packer.pack((REQUEST, msgid, method, params)))
        reply = self._waiting[msgid] = self._loop.create_future()
        timer = self._loop.call_at(deadline, self._expire, reply)
        answered = False
        try:
            message = await reply
            answered = True
            return message[2], message[3]
        finally:
            timer.cancel()
            if not answered:
                self._give_up(msgid, reply)
            elif self._retired:
                self._close_if_quiet()

    def retire(self) -> None:
        """Take no more calls, and close once nobody waits for a reply."""
        self._retired = True
        self._close_if_quiet()

    def close(self, failure: Unavailable | None = None) -> None:
        """Close, and tell everybody who waits why."""
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self.abandon()
        failure = failure or Unavailable("the connection to the agent was closed")
        for msgid, reply in self._waiting.items():
            if not reply.done():
                kind = Unavailable if msgid in self._spoken_to else type(failure)
                reply.set_exception(kind(*failure.args))

    def abandon(self) -> None:
        """Close the descriptor without telling the loop, which is closed or another process's."""
        self.closed = True
        self._sock.close()

    def _send(self, data: bytes) -> None:
        if not self._unsent:
            try:
                data = data[self._sock.send(data) :]
            except BlockingIOError:
                pass
            except OSError as e:
                raise self._end(Lost(f"the connection to the agent broke: {e}")) from None
            if data:
                self._loop.add_writer(self._fd, self._writable)
        self._unsent += data

    def _writable(self) -> None:
        try:
            del self._unsent[: self._sock.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError as e:
            self._end(Lost(f"the connection to the agent broke: {e}"))
            return
        if not self._unsent:
            self._loop.remove_writer(self._fd)

    def _readable(self) -> None:
        try:
            self._read()
        except BlockingIOError:
            return
        except OSError as e:
            self._end(self._broken(f"the connection to the agent broke: {e}"))
        except ProtocolError as e:
            self._end(e)

    def _read(self) -> None:
        data = self._sock.recv(self._inbox.room())
        if not data:
            self._end(self._broken("the agent closed the connection"))
        for message in self._inbox.take(data):
            self._deliver(message)

    def _deliver(self, message: list[Any]) -> None:
        if is_notification(message):
            self._spoken_to = set(self._waiting)
            return
        if not is_response(message):
            raise ProtocolError(f"the agent sent what is no message: {message!r:.200}")
        msgid = message[1]
        reply = self._waiting.pop(msgid, None)
        if reply is not None and not reply.done():
            reply.set_result(message)
        elif reply is not None or msgid in self._late:
            self._late.discard(msgid)
            self._throw_away(message)
        else:
            raise ProtocolError(f"the agent's message answers no call: {message!r:.200}")

    def _expire(self, reply: asyncio.Future[list[Any]]) -> None:
        """The budget is spent: what lies in the socket by now still counts."""
        if not self.closed:
            self._readable()
        if not reply.done():
            reply.set_exception(AgentTimeout("the agent did not answer in time"))

    def _give_up(self, msgid: int, reply: asyncio.Future[list[Any]]) -> None:
        if reply.done() and not reply.cancelled() and reply.exception() is None:
            self._throw_away(reply.result())  # it came, and then its task was cancelled
        elif self._waiting.pop(msgid, None) is not None and not self.closed:
            self._late.add(msgid)
            if len(self._late) >= MAX_LATE:
                self._retired = True
        self._close_if_quiet()

    def _throw_away(self, message: list[Any]) -> None:
        if message[2] is None and not self.closed:
            for permit in permits(message[3]):
                self._loop.call_soon(partial(self._release, permit))

    def _release(self, permit: int) -> None:
        if not self.closed:
            try:
                self._send(self._packer.pack((NOTIFICATION, "release", (permit,))))
            except Unavailable:
                return  # then the agent takes the permit back by itself

    def _close_if_quiet(self) -> None:
        if self._retired and not self._waiting:
            self.close()

    def _broken(self, message: str) -> Unavailable:
        return Unavailable(message + IN_THE_MIDDLE) if self._inbox.partial else Lost(message)

    def _end(self, failure: Unavailable) -> Unavailable:
        self.close(failure)
        return failure


_live: weakref.WeakSet[Connection] = weakref.WeakSet()


def _abandon_in_child() -> None:
    for connection in list(_live):
        connection.abandon()
    _live.clear()


os.register_at_fork(after_in_child=_abandon_in_child)
