"""The blocking client: one method per question."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from . import _wire
from ._arguments import Key
from ._connection import Connection, Lost
from ._decision import AllDecision, Decision, ThrottleReply
from ._decorate import F, KeyOf, Rule, decorate
from ._errors import RateLimited, RlsidecarError, Unavailable
from ._limit import Limit
from ._permit import Permit
from ._pool import Pool
from ._questions import Item, Question, Questions
from ._settings import OnUnavailable, socket_path

if TYPE_CHECKING:
    from .asyncio import Client as AsyncClient

T = TypeVar("T")


class Client:
    """Asks the agent on this host. Share one per process, between all threads.

    address:        `unix:///path` or a path; default RLSIDECAR_ADDRESS, then
                    unix:///run/rlsidecar/rlsidecar.sock
    timeout:        seconds a whole call may take, connecting included; default
                    RLSIDECAR_TIMEOUT_MS, then 0.05
    on_unavailable: what a call that gets no decision does: "allow", "deny", "local" or
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
        self._questions = Questions(timeout, on_unavailable, app)

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
        return self._ask(self._questions.acquire(limit, key, cost, wait, timeout))

    def acquire_all(
        self, items: Iterable[Item], *, wait: float = 0.0, timeout: float | None = None
    ) -> AllDecision:
        """Take from all of 1 to 32 `(limit, key)` or `(limit, key, cost)`, or from none.

        wait: as in `acquire`.
        """
        return self._ask(self._questions.acquire_all(items, wait, timeout))

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
        kept: list[Connection] = []
        decision = self._ask(self._questions.acquire(limit, key, cost, wait, timeout), kept.append)
        if decision.permit is None or not decision:
            while kept:
                self._pool.give(kept.pop())
        if not decision:
            raise RateLimited(decision)
        permit = Permit(decision, kept, partial(self._release_over, decision.permit, timeout))
        try:
            yield permit
        finally:
            permit.release()

    def limit(
        self,
        limit: str | Limit,
        *,
        key: KeyOf,
        cost: int | Callable[..., int] = 1,
        wait: float = 0.0,
        on_denied: Callable[[Decision], Any] | None = None,
    ) -> Callable[[F], F]:
        """Decorates a `def` or an `async def`, a method too: ask, and run it when allowed.

        key: the key, or a function of the call's arguments that gives it (for a method,
             of `self` too); None from it means that this call is not limited. For an
             `async def` it may be async.
        cost: permits, or a function of the call's arguments
        on_denied: called with the decision, gives the result of a denied call; without
             it, RateLimited is raised
        """
        rule = Rule(limit, key, cost, wait, on_denied)
        return lambda function: decorate(function, rule, lambda: self, lambda: self._asynchronous)

    def release(self, permit: int | None, *, timeout: float | None = None) -> bool:
        """Give back the `permit` of a decision. A `hold` does this by itself.

        True: it was held. False: it was not any more, the agent was not reached, or the
        permit is None, as in a decision that took none.
        """
        if permit is None:
            return False
        return self._ask(self._questions.release(permit, timeout))

    def peek(self, limit: str | Limit, key: Key, *, cost: int = 1, timeout: float | None = None) -> Decision:
        """What `acquire` would say, without taking anything. `cost` may be 0."""
        return self._ask(self._questions.peek(limit, key, cost, timeout))

    def refund(self, limit: str | Limit, key: Key, *, cost: int = 1, timeout: float | None = None) -> bool:
        """Give permits back, never above the capacity. False: the agent was not reached."""
        return self._ask(self._questions.refund(limit, key, cost, timeout))

    def reset(self, limit: str | Limit, key: Key, *, timeout: float | None = None) -> bool:
        """Start the bucket afresh, on every host. False: the agent was not reached."""
        return self._ask(self._questions.reset(limit, key, timeout))

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
        return self._ask(self._questions.throttle(key, max_burst, count, period, quantity, timeout))

    def info(self, *, timeout: float | None = None) -> dict[str, Any]:
        """The agent about itself. Raises Unavailable in every mode: there is no other answer."""
        return self._ask(self._questions.info(timeout))

    def ping(self, *, timeout: float | None = None) -> bool:
        """True when the agent answers. Raises Unavailable in every mode when it does not."""
        return self._ask(self._questions.ping(timeout))

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

    @cached_property
    def _asynchronous(self) -> AsyncClient:
        """The asyncio client of the same settings, for what `limit` decorates. Importing it costs time."""
        from .asyncio import Client as AsyncClient

        return AsyncClient(self._pool.path, **self._questions.settings)

    def _ask(self, question: Question[T], give: Callable[[Connection], None] | None = None) -> T:
        """Ask, or do without an answer. `give` gets the connection, instead of the pool."""
        questions = self._questions
        if questions.disabled:
            return questions.without_agent(question)
        try:
            return self._call(question, self._pool.take(), give or self._pool.give)
        except Unavailable as failure:
            return questions.without_answer(question, failure)

    def _release_over(self, permit: int | None, timeout: float | None, connection: Connection) -> bool:
        """End a hold over the connection that was set aside for it, or a new one if that is dead."""
        try:
            return self._call(self._questions.release(permit, timeout), connection, self._pool.give)
        except RlsidecarError as failure:
            self._questions.report(failure)
            return False

    def _call(
        self, question: Question[T], connection: Connection | None, give: Callable[[Connection], None]
    ) -> T:
        """Ask once; once more only if a connection that was used before turns out to be dead.

        connection: one to ask over, that was used before; None: a new one
        give: what gets the connection with the answer
        """
        method, params, budget, decode, _ = question
        deadline = time.monotonic() + budget
        new = connection is None
        while True:
            if connection is None:
                connection = self._pool.connect(deadline)
            try:
                error, result = connection.call(method, params, deadline)
                if error is None:
                    answer = decode(result)
                    give(connection)
                    return answer
                failure = _wire.failure(error)
            except Lost:
                connection.close()
                if new:
                    raise
                self._pool.close_idle()
                connection, new = None, True
            except BaseException:
                connection.close()
                raise
            else:
                self._pool.give(connection)
                raise failure
