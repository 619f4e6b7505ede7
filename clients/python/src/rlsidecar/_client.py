"""The client: one method per question, one place where having no answer is dealt with."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
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
from ._connection import Connection, Lost
from ._decision import AllDecision, Decision, ThrottleReply, unanswered, unanswered_throttle
from ._errors import InvalidRequest, RateLimited, RlsidecarError, Unavailable
from ._limit import Limit
from ._permit import Permit
from ._pool import Pool
from ._settings import OnUnavailable, app_name, call_timeout, is_disabled, socket_path, unavailable_mode

LOG_INTERVAL = 10.0

Item = tuple[str | Limit, Key] | tuple[str | Limit, Key, int]
T = TypeVar("T")

_log = logging.getLogger("rlsidecar")


class Client:
    """Asks the agent on this host. Share one per process, between all threads.

    address:        `unix:///path` or a path; default RLSIDECAR_ADDRESS, then
                    unix:///run/rlsidecar/rlsidecar.sock
    timeout:        seconds a whole call may take, connecting included; default
                    RLSIDECAR_TIMEOUT_MS, then 0.05
    on_unavailable: what a call that gets no decision does: "allow", "deny" or
                    "raise"; default RLSIDECAR_ON_UNAVAILABLE, then "allow"
    app:            the name of the calling application, where the operator lets callers
                    say so; default RLSIDECAR_APP, then none

    Raises ValueError for an address, timeout, mode or app that cannot be. Does not
    connect: a missing agent is noticed by the first call.

    A `limit` is a policy name, a `Limit`, or a string like "10/minute". A `key` is
    str or bytes, 1..1024 bytes. A `cost` is 1..2**53-1. Every call raises
    InvalidRequest, UnknownPolicy or NotPermitted when the question itself is wrong,
    and Unavailable in mode "raise" only.
    """

    def __init__(
        self,
        address: str | os.PathLike[str] | None = None,
        *,
        timeout: float | None = None,
        on_unavailable: OnUnavailable | None = None,
        app: str | None = None,
    ) -> None:
        self._pool = Pool(socket_path(address))
        self._timeout = call_timeout(timeout)
        self._on_unavailable = unavailable_mode(on_unavailable)
        self._app = app_name(app)
        self._disabled = is_disabled()
        self._quiet_until = 0.0
        self._unreported = 0

    def acquire(
        self,
        limit: str | Limit,
        key: Key,
        *,
        cost: int = 1,
        wait: float = 0.0,
        timeout: float | None = None,
    ) -> Decision:
        """Take `cost` permits if they are there. A denial is returned, never raised.

        wait: seconds that the agent may hold the answer for permits to come. The
        budget of the call is wait + timeout.
        """
        return self._acquire(limit, key, cost, wait, self._budget(timeout))

    def acquire_all(
        self, items: Iterable[Item], *, wait: float = 0.0, timeout: float | None = None
    ) -> AllDecision:
        """Take from all of 1 to 32 `(limit, key)` or `(limit, key, cost)`, or from none.

        wait: as in `acquire`.
        """
        asked = [_item(item) for item in items]
        if not 1 <= len(asked) <= MAX_ITEMS:
            raise InvalidRequest(f"{len(asked)} items: allowed are 1 to {MAX_ITEMS}")
        params = ([(wire, key, cost) for wire, key, cost, _ in asked], *self._options(wait))

        def otherwise(allowed: bool) -> AllDecision:
            decisions = tuple(unanswered(allowed, cost, capacity) for _, _, cost, capacity in asked)
            return AllDecision(all(decisions), decisions)

        decode = partial(_wire.all_decision, len(asked))
        return self._ask("acquire_all", params, self._budget(timeout) + wait, decode, otherwise)

    @contextmanager
    def hold(
        self,
        limit: str | Limit,
        key: Key,
        *,
        cost: int = 1,
        wait: float = 0.0,
        timeout: float | None = None,
    ) -> Iterator[Permit]:
        """Hold a permit of a concurrency limit while a `with` block, or a decorated function, runs.

        Raises RateLimited, and does not run the block, when there is no permit within
        `wait` seconds. The permit is released when the block ends, however it ends; that
        never raises. Without an agent, on_unavailable says whether the block runs.
        """
        budget = self._budget(timeout)
        kept: list[Connection] = []
        decision = self._acquire(limit, key, cost, wait, budget, kept.append)
        if decision.permit is None or not decision:
            while kept:
                self._pool.give(kept.pop())
        if not decision:
            raise RateLimited(decision)
        permit = Permit(decision, kept, partial(self._release_over, decision.permit, budget))
        try:
            yield permit
        finally:
            permit.release()

    def release(self, permit: int | None, *, timeout: float | None = None) -> bool:
        """Give back the `permit` of a decision. A `hold` does this by itself.

        True: it was held. False: it was not any more, the agent was not reached, or the
        permit is None, as in a decision that took none.
        """
        if permit is None:
            return False
        params = (check_number("permit", permit, 1),)
        return self._ask("release", params, self._budget(timeout), _wire.truth, _not_done)

    def peek(self, limit: str | Limit, key: Key, *, cost: int = 1, timeout: float | None = None) -> Decision:
        """What `acquire` would say, without taking anything. `cost` may be 0."""
        wire, capacity = check_limit(limit)
        params = (wire, check_key(key), check_cost(cost, least=0), *self._options())
        budget = self._budget(timeout)
        return self._ask("peek", params, budget, _wire.decision, lambda ok: unanswered(ok, cost, capacity))

    def refund(self, limit: str | Limit, key: Key, *, cost: int = 1, timeout: float | None = None) -> bool:
        """Give permits back, never above the capacity. False: the agent was not reached."""
        params = (check_limit(limit)[0], check_key(key), check_cost(cost), *self._options())
        return self._ask("refund", params, self._budget(timeout), _wire.truth, _not_done)

    def reset(self, limit: str | Limit, key: Key, *, timeout: float | None = None) -> bool:
        """Start the bucket afresh, on every host. False: the agent was not reached."""
        options = self._options()
        params = (check_limit(limit)[0], check_key(key), *((1, *options) if options else ()))
        return self._ask("reset", params, self._budget(timeout), _wire.truth, _not_done)

    def throttle(
        self,
        key: Key,
        max_burst: int,
        count: int,
        period: int,
        quantity: int = 1,
        *,
        timeout: float | None = None,
    ) -> ThrottleReply:
        """redis-cell's CL.THROTTLE: `count` per `period` seconds, and `max_burst` on top."""
        check_number("max_burst", max_burst, 0)
        check_number("count", count, 1)
        check_number("period", period, 1)
        check_number("quantity", quantity, 0)
        params = (check_key(key), max_burst, count, period, quantity)
        budget = self._budget(timeout)
        return self._ask(
            "throttle",
            params,
            budget,
            _wire.throttle,
            lambda ok: unanswered_throttle(ok, quantity, max_burst + 1),
        )

    def info(self, *, timeout: float | None = None) -> dict[str, Any]:
        """The agent about itself. Raises Unavailable in every mode: there is no other answer."""
        return self._call("info", (), self._budget(timeout), _wire.info)

    def ping(self, *, timeout: float | None = None) -> bool:
        """True when the agent answers. Raises Unavailable in every mode when it does not."""
        return self._call("ping", (), self._budget(timeout), _wire.pong)

    def close(self) -> None:
        """Close the idle connections. A call made after it connects again."""
        self._pool.close_idle()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _budget(self, timeout: float | None) -> float:
        return self._timeout if timeout is None else check_timeout(timeout)

    def _options(self, wait: float = 0) -> tuple[dict[str, Any], ...]:
        """The options of a call as its last parameter, if it has any."""
        options: dict[str, Any] = {} if self._app is None else {"app": self._app}
        if milliseconds := wait_milliseconds(wait):
            options["wait_ms"] = milliseconds
        return (options,) if options else ()

    def _acquire(
        self,
        limit: str | Limit,
        key: Key,
        cost: int,
        wait: float,
        timeout: float,
        give: Callable[[Connection], None] | None = None,
    ) -> Decision:
        wire, capacity = check_limit(limit)
        params = (wire, check_key(key), check_cost(cost), *self._options(wait))
        return self._ask(
            "acquire",
            params,
            timeout + wait,
            _wire.decision,
            lambda ok: unanswered(ok, cost, capacity),
            give,
        )

    def _release_over(self, permit: int | None, timeout: float, connection: Connection) -> bool:
        """End a hold over the connection that was set aside for it, or a new one if that is dead."""
        try:
            return self._call("release", (permit,), timeout, _wire.truth, over=connection)
        except RlsidecarError as failure:
            self._report(failure)
            return False

    def _ask(
        self,
        method: str,
        params: tuple[Any, ...],
        budget: float,
        decode: Callable[[Any], T],
        otherwise: Callable[[bool], T],
        give: Callable[[Connection], None] | None = None,
    ) -> T:
        """Ask the agent; having no answer, do what on_unavailable says, for every method alike."""
        if self._disabled:
            return otherwise(True)
        try:
            return self._call(method, params, budget, decode, give)
        except Unavailable as failure:
            self._report(failure)
            if self._on_unavailable == "raise":
                raise
            return otherwise(self._on_unavailable == "allow")

    def _call(
        self,
        method: str,
        params: tuple[Any, ...],
        budget: float,
        decode: Callable[[Any], T],
        give: Callable[[Connection], None] | None = None,
        over: Connection | None = None,
    ) -> T:
        """Ask once; once more only if a connection that was used before turns out to be dead.

        give: what gets the connection with the answer, instead of the pool
        over: the connection to ask over, instead of one of the pool
        """
        if self._disabled:
            raise Unavailable("switched off by RLSIDECAR_DISABLE")
        deadline = time.monotonic() + budget
        connection = self._pool.take() if over is None else over
        if connection is not None:
            try:
                return self._exchange(connection, method, params, deadline, decode, give)
            except Lost:
                self._pool.close_idle()
        return self._exchange(self._pool.connect(deadline), method, params, deadline, decode, give)

    def _exchange(
        self,
        connection: Connection,
        method: str,
        params: tuple[Any, ...],
        deadline: float,
        decode: Callable[[Any], T],
        give: Callable[[Connection], None] | None,
    ) -> T:
        """One call on one connection, which is idle again afterwards, given away, or closed."""
        try:
            error, result = connection.call(method, params, deadline)
            outcome = decode(result) if error is None else _wire.failure(error)
        except BaseException:
            connection.close()
            raise
        if isinstance(outcome, Exception):
            self._pool.give(connection)
            raise outcome
        (give or self._pool.give)(connection)
        return outcome

    def _report(self, failure: RlsidecarError) -> None:
        now = time.monotonic()
        if now < self._quiet_until:
            self._unreported += 1
            return
        unreported, self._unreported = self._unreported, 0
        self._quiet_until = now + LOG_INTERVAL
        _log.warning(
            "no decision from the agent, on_unavailable=%s applies: %s (%d more since the last such line)",
            self._on_unavailable,
            failure,
            unreported,
        )


def _not_done(_: bool) -> bool:
    return False


def _item(item: Item) -> tuple[Any, Key, int, int | None]:
    if not isinstance(item, (tuple, list)) or not 2 <= len(item) <= 3:
        raise InvalidRequest(f"item {item!r}: write (limit, key) or (limit, key, cost)")
    wire, capacity = check_limit(item[0])
    return wire, check_key(item[1]), check_cost(item[2] if len(item) == 3 else 1), capacity
