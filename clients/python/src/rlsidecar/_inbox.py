"""Whole messages out of the bytes of one connection, within the bounds of the wire."""

from __future__ import annotations

from typing import Any

import msgpack

from ._errors import ProtocolError
from ._wire import MAX_DEPTH, MAX_MESSAGE, is_flat, new_unpacker, within_depth


class Inbox:
    """What was received on a connection since it was opened.

    received: bytes so far
    partial:  whether they end in the middle of a message
    """

    __slots__ = ("_start", "_unpacker", "received")

    def __init__(self) -> None:
        self.received = 0
        self._start = 0  # of the bytes received, those of complete messages
        self._unpacker = new_unpacker()

    @property
    def partial(self) -> bool:
        return self._start != self.received

    def room(self) -> int:
        """How much to read: never more than the message under way may still have."""
        room = MAX_MESSAGE - (self.received - self._start)
        if room == 0:
            raise ProtocolError(f"the agent's message is over {MAX_MESSAGE} bytes")
        return room

    def take(self, data: bytes) -> list[list[Any]]:
        """The messages that these bytes complete. Raises ProtocolError; the connection is then of no use."""
        flat = self._start == self.received and is_flat(data)
        self.received += len(data)
        unpacker = self._unpacker
        messages = []
        try:
            unpacker.feed(data)
            while self._start != self.received:
                message = unpacker.unpack()
                self._start = unpacker.tell()
                if type(message) is not list or not (flat or within_depth(message, MAX_DEPTH)):
                    raise ProtocolError(f"the agent sent what is no message: {message!r:.200}")
                messages.append(message)
        except msgpack.OutOfData:
            pass
        except (ValueError, TypeError, OverflowError, msgpack.UnpackException) as e:
            raise ProtocolError(f"the agent's bytes are not MessagePack within the bounds: {e}") from None
        return messages
