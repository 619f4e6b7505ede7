"""Reading what the agent says: bounds, shapes, error codes.

Every decoder takes one decoded MessagePack value and returns what the caller
gets, or raises ProtocolError. Elements beyond those known here are skipped.
"""

from __future__ import annotations

import random
from typing import Any

import msgpack

from ._decision import AllDecision, Decision, Source, ThrottleReply
from ._errors import InvalidRequest, NotPermitted, ProtocolError, RlsidecarError, Unavailable, UnknownPolicy

REQUEST, RESPONSE, NOTIFICATION = 0, 1, 2
MAX_MSGID = 2**31 - 1
MAX_MESSAGE = 64 * 1024
MAX_LENGTH = 1024
MAX_DEPTH = 8

_MAX_MILLISECONDS = 2**53 - 1
_SHADOW = 1
_new_tuple = tuple.__new__
_SOURCES = tuple(Source(number) for number in range(6))
_KNOWN_SOURCES = len(_SOURCES)
_INVALID_REQUEST, _UNKNOWN_METHOD = 1, 2
_MISTAKES: dict[int, type[RlsidecarError]] = {3: UnknownPolicy, 4: InvalidRequest, 8: NotPermitted}


# The application may seed the module's generator, in every worker with the same number.
_random = random.SystemRandom()


def first_msgid() -> int:
    return _random.randint(0, MAX_MSGID)


def new_packer() -> msgpack.Packer:
    return msgpack.Packer(use_bin_type=True)


def new_unpacker() -> msgpack.Unpacker:
    """An unpacker that allocates nothing for a declared length, only for bytes that are there.

    Arrays and maps over their bound are refused at the header. msgpack's C code looks at
    the length of a str, bin or ext once its bytes have come; so it is the connection that
    ends those, at 64 KiB or at the deadline.
    """
    return msgpack.Unpacker(
        max_buffer_size=MAX_MESSAGE,
        max_str_len=MAX_MESSAGE,
        max_bin_len=MAX_MESSAGE,
        max_ext_len=MAX_MESSAGE,
        max_array_len=MAX_LENGTH,
        max_map_len=MAX_LENGTH,
        strict_map_key=False,
        unicode_errors="replace",
    )


_IS_CONTAINER = bytes(0x80 <= b <= 0x9F or 0xDC <= b <= 0xDF for b in range(256))


def is_flat(data: bytes) -> bool:
    """Whether messages that are these bytes cannot nest too deep.

    Each level takes a byte that starts an array or a map. Where there are no more such
    bytes than levels are allowed, nobody needs to look at the decoded values.
    """
    return data.translate(_IS_CONTAINER).count(1) <= MAX_DEPTH


def within_depth(value: Any, levels: int) -> bool:
    """Whether arrays and maps nest at most `levels` deep below and including value."""
    if levels == 0:
        return False
    items = value.values() if type(value) is dict else value
    for item in items:
        kind = type(item)
        if (kind is list or kind is dict) and not within_depth(item, levels - 1):
            return False
    return True


def is_notification(message: list[Any]) -> bool:
    return len(message) >= 3 and _is(message[0], NOTIFICATION) and isinstance(message[1], (str, bytes))


def is_response(message: list[Any]) -> bool:
    return len(message) >= 4 and _is(message[0], RESPONSE) and type(message[1]) is int


def is_reply_to(msgid: int, message: list[Any]) -> bool:
    if len(message) < 4:
        return False
    kind, number = message[0], message[1]
    return type(kind) is type(number) is int and kind == RESPONSE and number == msgid


def _is(value: Any, number: int) -> bool:
    return type(value) is int and value == number


def failure(error: Any) -> RlsidecarError:
    """The exception for `[code, message, ...]`.

    Code 1 is raised rather than returned: the agent closes the connection after it.
    """
    if type(error) is not list or len(error) < 2 or type(error[0]) is not int:
        raise ProtocolError(f"the agent's error has the wrong shape: {error!r:.200}")
    code, message = error[0], error[1]
    text = message.decode(errors="replace") if isinstance(message, bytes) else str(message)
    if code == _INVALID_REQUEST:
        raise ProtocolError(f"the agent refused the request: {text}")
    if code == _UNKNOWN_METHOD:
        return ProtocolError(f"the agent does not know the method, it may be older than this client: {text}")
    return _MISTAKES.get(code, Unavailable)(text)


def decision(result: Any) -> Decision:
    if type(result) is not list or len(result) < 7:
        raise _wrong("decision", result)
    permit = None
    if len(result) > 7:
        permit, result = _permit(result[7]), result[:7]
    allowed, limit, remaining, reset_ms, retry_ms, source, flags = result
    numbers = type(limit) is type(remaining) is type(reset_ms) is type(retry_ms) is type(source) is int
    if (
        not numbers
        or type(flags) is not int
        or type(allowed) is not bool
        or (limit | remaining | source | flags) < 0  # as one of them is
        or not 0 <= reset_ms <= _MAX_MILLISECONDS
        or not -1 <= retry_ms <= _MAX_MILLISECONDS
    ):
        raise _wrong("decision", result)
    known = _SOURCES[source] if source < _KNOWN_SOURCES else Source.UNKNOWN
    fields = (allowed, limit, remaining, reset_ms, retry_ms, known, flags & _SHADOW != 0, permit)
    return _new_tuple(Decision, fields)  # as Decision(*fields), in half the time


def _permit(item: Any) -> int | None:
    return item if type(item) is int and item > 0 else None


def permits(result: Any) -> list[int]:
    """The permits in a result that nobody is there for any more, of acquire or acquire_all."""
    if type(result) is not list or len(result) < 2 or result[0] is not True:
        return []
    decisions = result[1] if type(result[1]) is list else [result]
    found = (_permit(item[7]) for item in decisions if type(item) is list and len(item) > 7)
    return [permit for permit in found if permit is not None]


def all_decision(items: int, result: Any) -> AllDecision:
    if type(result) is not list or len(result) < 2:
        raise _wrong("answer to acquire_all", result)
    allowed, decisions = result[:2]
    if type(allowed) is not bool or type(decisions) is not list or len(decisions) != items:
        raise _wrong("answer to acquire_all", result)
    return AllDecision(allowed, tuple(map(decision, decisions)))


def throttle(result: Any) -> ThrottleReply:
    if type(result) is not list or len(result) < 5 or not all(isinstance(item, int) for item in result[:5]):
        raise _wrong("answer to throttle", result)
    limited, *rest = result[:5]
    return ThrottleReply(bool(limited), *rest)


def truth(result: Any) -> bool:
    if type(result) is not bool:
        raise _wrong("answer", result)
    return result


def pong(result: Any) -> bool:
    if result not in ("pong", b"pong"):
        raise _wrong("answer to ping", result)
    return True


def info(result: Any) -> dict[str, Any]:
    if type(result) is not dict:
        raise _wrong("answer to info", result)
    return result


def _wrong(what: str, value: Any) -> ProtocolError:
    return ProtocolError(f"the agent's {what} has the wrong shape: {value!r:.200}")
