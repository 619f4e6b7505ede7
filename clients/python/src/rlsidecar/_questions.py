"""What a client asks, formed without any I/O, and what it does without an answer.

The blocking and the asyncio client differ in how they send a question and wait;
what is asked, what is refused before a byte is sent, and what happens when no
decision is had are here, once for both.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from . import _wire
from ._arguments import (
    MAX_ITEMS,
    Key,
    check_cost,
    check_key,
    check_limit,
    check_number,
    check_timeout,
    wait_milliseconds,
)
from ._decision import AllDecision, Decision, ThrottleReply, unanswered, unanswered_throttle
from ._errors import InvalidRequest, RlsidecarError, Unavailable
from ._limit import Inline, Limit
from ._local import LocalBuckets
from ._settings import app_name, call_timeout, is_disabled, unavailable_mode

LOG_INTERVAL = 10.0

Item = tuple[str | Limit, Key] | tuple[str | Limit, Key, int]
T = TypeVar("T")

_log = logging.getLogger("rlsidecar")


# One request to the agent: the method, its parameters, the seconds that the whole call may take,
# what makes the caller's answer of the result on the wire, and what the answer is when there is
# none, by whether to allow; None: unavailable is raised in every mode. A bare tuple, for it is
# made for each call and taken apart once.
Question = tuple[str, tuple[Any, ...], float, Callable[[Any], T], Callable[[bool], T] | None]


class Questions:
    """The settings of one client, and the questions it forms with them."""

    def __init__(self, timeout: float | None, on_unavailable: str | None, app: str | None) -> None:
        self.timeout = call_timeout(timeout)
        self.on_unavailable = unavailable_mode(on_unavailable)
        self.app = app_name(app)
        self.disabled = is_disabled()
        self._local = LocalBuckets()
        self._quiet_until = 0.0
        self._unreported = 0

    @property
    def settings(self) -> dict[str, Any]:
        """The constructor's arguments of a client with the same settings."""
        return {"timeout": self.timeout, "on_unavailable": self.on_unavailable, "app": self.app}

    def acquire(
        self, limit: str | Limit, key: Key, cost: int, wait: float, timeout: float | None
    ) -> Question[Decision]:
        wire, capacity = check_limit(limit)
        params: tuple[Any, ...] = (wire, check_key(key), check_cost(cost))
        if wait or self.app is not None:
            params += self._options(wait)
        return (
            "acquire",
            params,
            (self.timeout if timeout is None else check_timeout(timeout)) + wait,
            _wire.decision,
            lambda allow: self._instead(allow, wire, key, cost, capacity),
        )

    def acquire_all(self, items: Iterable[Item], wait: float, timeout: float | None) -> Question[AllDecision]:
        asked = [_item(item) for item in items]
        if not 1 <= len(asked) <= MAX_ITEMS:
            raise InvalidRequest(f"{len(asked)} items: allowed are 1 to {MAX_ITEMS}")
        params = ([(wire, key, cost) for wire, key, cost, _ in asked], *self._options(wait))

        def otherwise(allow: bool) -> AllDecision:
            for take in (False, True):
                decisions = tuple(self._instead(allow, *one, take=take) for one in asked)
                if not all(decisions):
                    break
            return AllDecision(all(decisions), decisions)

        decode = partial(_wire.all_decision, len(asked))
        return "acquire_all", params, self._budget(timeout) + wait, decode, otherwise

    def release(self, permit: int | None, timeout: float | None) -> Question[bool]:
        params = (check_number("permit", permit, 1),)
        return "release", params, self._budget(timeout), _wire.truth, _not_done

    def peek(self, limit: str | Limit, key: Key, cost: int, timeout: float | None) -> Question[Decision]:
        wire, capacity = check_limit(limit)
        params = (wire, check_key(key), check_cost(cost, least=0), *self._options())
        return (
            "peek",
            params,
            self._budget(timeout),
            _wire.decision,
            lambda allow: self._instead(allow, wire, key, cost, capacity, take=False),
        )

    def refund(self, limit: str | Limit, key: Key, cost: int, timeout: float | None) -> Question[bool]:
        params = (check_limit(limit)[0], check_key(key), check_cost(cost), *self._options())
        return "refund", params, self._budget(timeout), _wire.truth, _not_done

    def reset(self, limit: str | Limit, key: Key, timeout: float | None) -> Question[bool]:
        options = self._options()
        params = (check_limit(limit)[0], check_key(key), *((1, *options) if options else ()))
        return "reset", params, self._budget(timeout), _wire.truth, _not_done

    def throttle(
        self, key: Key, max_burst: int, count: int, period: int, quantity: int, timeout: float | None
    ) -> Question[ThrottleReply]:
        check_number("max_burst", max_burst, 0)
        check_number("count", count, 1)
        check_number("period", period, 1)
        check_number("quantity", quantity, 0)
        return (
            "throttle",
            (check_key(key), max_burst, count, period, quantity),
            self._budget(timeout),
            _wire.throttle,
            lambda allow: unanswered_throttle(allow, quantity, max_burst + 1),
        )

    def info(self, timeout: float | None) -> Question[dict[str, Any]]:
        return "info", (), self._budget(timeout), _wire.info, None

    def ping(self, timeout: float | None) -> Question[bool]:
        return "ping", (), self._budget(timeout), _wire.pong, None

    def without_agent(self, question: Question[T]) -> T:
        """The answer where RLSIDECAR_DISABLE says to ask nobody."""
        *_, otherwise = question
        if otherwise is None:
            raise Unavailable("switched off by RLSIDECAR_DISABLE")
        return otherwise(True)

    def without_answer(self, question: Question[T], failure: Unavailable) -> T:
        """Do what on_unavailable says, for every method alike."""
        *_, otherwise = question
        if otherwise is None:
            raise failure
        self.report(failure)
        if self.on_unavailable == "raise":
            raise failure
        return otherwise(self.on_unavailable != "deny")

    def report(self, failure: RlsidecarError) -> None:
        """One line per interval in the log."""
        now = time.monotonic()
        if now < self._quiet_until:
            self._unreported += 1
            return
        unreported, self._unreported = self._unreported, 0
        self._quiet_until = now + LOG_INTERVAL
        _log.warning(
            "no decision from the agent, on_unavailable=%s applies: %s (%d more since the last such line)",
            self.on_unavailable,
            failure,
            unreported,
        )

    def _instead(
        self, allow: bool, wire: str | Inline, key: Key, cost: int, capacity: int | None, *, take: bool = True
    ) -> Decision:
        """The decision of a call that the agent gave none for."""
        if self.on_unavailable != "local" or self.disabled or isinstance(wire, str) or capacity is None:
            return unanswered(allow, cost, capacity)
        return self._local.ask(wire, key, cost, capacity, take)

    def _budget(self, timeout: float | None) -> float:
        return self.timeout if timeout is None else check_timeout(timeout)

    def _options(self, wait: float = 0) -> tuple[dict[str, Any], ...]:
        """The options of a call as its last parameter, if it has any."""
        options: dict[str, Any] = {} if self.app is None else {"app": self.app}
        if milliseconds := wait_milliseconds(wait):
            options["wait_ms"] = milliseconds
        return (options,) if options else ()


def _not_done(_: bool) -> bool:
    return False


def _item(item: Item) -> tuple[Any, Key, int, int | None]:
    if not isinstance(item, (tuple, list)) or not 2 <= len(item) <= 3:
        raise InvalidRequest(f"item {item!r}: write (limit, key) or (limit, key, cost)")
    wire, capacity = check_limit(item[0])
    return wire, check_key(item[1]), check_cost(item[2] if len(item) == 3 else 1), capacity
