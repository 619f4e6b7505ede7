"""The asyncio client: the same names as the blocking one, with `await`.

from rlsidecar.asyncio import Client

limits = Client()
if not await limits.acquire("login", key=username):
    ...
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import cached_property, partial
from types import TracebackType
from typing import Any, TypeVar

from . import _wire
from ._arguments import Key
from ._back_off import BackOff
from ._client import Client as BlockingClient
from ._connection import Lost
from ._decision import AllDecision, Decision, ThrottleReply
from ._decorate import F, KeyOf, Rule, decorate
from ._errors import ProtocolError, RateLimited, RlsidecarError, Unavailable
from ._limit import Limit
from ._loop_connections import LoopConnections
from ._multiplexed import Connection
from ._permit import AsyncPermit
from ._questions import Item, Question, Questions
from ._settings import OnUnavailable, socket_path

__all__ = ["AsyncPermit", "Client"]

T = TypeVar("T")


class Client:
    """Asks the agent on this host. Share one per process, between all tasks and loops.

    Arguments, limits, keys, costs and errors are those of `rlsidecar.Client`. Building
    one needs no running loop and does not connect. Each loop that calls has connections
    of its own. Every call may be cancelled: nobody else's answer is affected.

    Close it with `await client.close()` or `async with`, once in each loop that used it.
    """

    def __init__(
        self,
        address: str | os.PathLike[str] | None = None,
        *,
        timeout: float | None = None,
        on_unavailable: OnUnavailable | None = None,
        app: str | None = None,
    ) -> None:
        self._path = socket_path(address)
        self._questions = Questions(timeout, on_unavailable, app)
        self._back_off = BackOff()
        self._loops: dict[asyncio.AbstractEventLoop, LoopConnections] = {}

    async def acquire(
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
        return await self._ask(self._questions.acquire(limit, key, cost, wait, timeout), alone=wait > 0)

    async def acquire_all(
        self, items: Iterable[Item], *, wait: float = 0.0, timeout: float | None = None
    ) -> AllDecision:
        """Take from all of 1 to 32 `(limit, key)` or `(limit, key, cost)`, or from none.

        wait: as in `acquire`.
        """
        return await self._ask(self._questions.acquire_all(items, wait, timeout), alone=wait > 0)

    @asynccontextmanager
    async def hold(
        self,
        limit: str | Limit,
        key: Key,
        *,
        cost: int = 1,
        wait: float = 0.0,
        timeout: float | None = None,
    ) -> AsyncIterator[AsyncPermit]:
        """Hold a permit of a concurrency limit while an `async with` block, or a decorated function, runs.

        Raises RateLimited, and does not run the block, when there is no permit within
        `wait` seconds. The permit is released when the block ends, however it ends; that
        raises nothing but a cancellation, and even then the release is on its way.
        Without an agent, on_unavailable says whether the block runs.
        """
        kept: list[Connection] = []
        question = self._questions.acquire(limit, key, cost, wait, timeout)
        decision = await self._ask(question, alone=True, kept=kept)
        if decision.permit is None or not decision:
            while kept:
                self._here().give(kept.pop())
        if not decision:
            raise RateLimited(decision)
        permit = AsyncPermit(decision, kept, partial(self._release_over, decision.permit, timeout))
        try:
            yield permit
        finally:
            await permit.release()

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
        return lambda function: decorate(function, rule, lambda: self._blocking, lambda: self)

    async def release(self, permit: int | None, *, timeout: float | None = None) -> bool:
        """Give back the `permit` of a decision. A `hold` does this by itself.

        True: it was held. False: it was not any more, the agent was not reached, or the
        permit is None, as in a decision that took none.
        """
        if permit is None:
            return False
        return await self._ask(self._questions.release(permit, timeout))

    async def peek(
        self, limit: str | Limit, key: Key, *, cost: int = 1, timeout: float | None = None
    ) -> Decision:
        """What `acquire` would say, without taking anything. `cost` may be 0."""
        return await self._ask(self._questions.peek(limit, key, cost, timeout))

    async def refund(
        self, limit: str | Limit, key: Key, *, cost: int = 1, timeout: float | None = None
    ) -> bool:
        """Give permits back, never above the capacity. False: the agent was not reached."""
        return await self._ask(self._questions.refund(limit, key, cost, timeout))

    async def reset(self, limit: str | Limit, key: Key, *, timeout: float | None = None) -> bool:
        """Start the bucket afresh, on every host. False: the agent was not reached."""
        return await self._ask(self._questions.reset(limit, key, timeout))

    async def throttle(
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
        return await self._ask(self._questions.throttle(key, max_burst, count, period, quantity, timeout))

    async def info(self, *, timeout: float | None = None) -> dict[str, Any]:
        """The agent about itself. Raises Unavailable in every mode: there is no other answer."""
        return await self._ask(self._questions.info(timeout))

    async def ping(self, *, timeout: float | None = None) -> bool:
        """True when the agent answers. Raises Unavailable in every mode when it does not."""
        return await self._ask(self._questions.ping(timeout))

    async def close(self) -> None:
        """Close the connections of the running loop. A call made after it connects again."""
        if "_blocking" in self.__dict__:
            self._blocking.close()
        here = self._loops.pop(asyncio.get_running_loop(), None)
        if here is None:
            return
        if here.pid == os.getpid():
            here.close()
        else:
            here.abandon()

    def forget_closed_loops(self) -> None:
        """Close what was left open in loops that have ended, or that a fork left behind.

        Done by itself when another loop calls for the first time.
        """
        for loop, there in list(self._loops.items()):
            if loop.is_closed() or there.pid != os.getpid():
                self._loops.pop(loop, None)
                there.abandon()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @cached_property
    def _blocking(self) -> BlockingClient:
        """The blocking client of the same settings, for what `limit` decorates."""
        return BlockingClient(self._path, **self._questions.settings)

    async def _ask(
        self, question: Question[T], *, alone: bool = False, kept: list[Connection] | None = None
    ) -> T:
        """alone: over a connection that nobody else uses meanwhile; it goes to `kept`, or back."""
        if self._questions.disabled:
            return self._questions.without_agent(question)
        try:
            here = self._here()
            connection = here.idle() if alone else here.shared()
            return await self._call(here, question, connection, alone, kept)
        except Unavailable as failure:
            return self._questions.without_answer(question, failure)

    async def _release_over(self, permit: int | None, timeout: float | None, connection: Connection) -> bool:
        """End a hold over the connection that was set aside for it, or a new one if that is dead."""
        try:
            question = self._questions.release(permit, timeout)
            usable = None if connection.closed else connection
            return await self._call(self._here(), question, usable, alone=True)
        except RlsidecarError as failure:
            self._questions.report(failure)
            return False

    async def _call(
        self,
        here: LoopConnections,
        question: Question[T],
        connection: Connection | None,
        alone: bool,
        kept: list[Connection] | None = None,
    ) -> T:
        """Ask once; once more only if a connection that was open before turns out to be dead."""
        _, _, budget, _, _ = question
        deadline = here.loop.time() + budget
        if connection is not None:
            try:
                return await self._exchange(here, connection, question, deadline, alone, kept)
            except Lost:
                pass
        connection = await here.connect(deadline, alone)
        return await self._exchange(here, connection, question, deadline, alone, kept)

    async def _exchange(
        self,
        here: LoopConnections,
        connection: Connection,
        question: Question[T],
        deadline: float,
        alone: bool,
        kept: list[Connection] | None,
    ) -> T:
        """One call on one connection; the connection is closed after any doubt about what it carries."""
        method, params, _, decode, _ = question
        try:
            error, result = await connection.call(method, params, deadline)
            if error is None:
                answer = decode(result)
            else:
                failure = _wire.failure(error)
        except ProtocolError as doubt:
            connection.close(doubt)
            raise
        except BaseException:
            if alone:
                connection.close()
            raise
        if alone and (error is not None or kept is None):
            here.give(connection)
        elif kept is not None:
            kept.append(connection)
        if error is not None:
            raise failure
        return answer

    def _here(self) -> LoopConnections:
        """The connections of the running loop."""
        loop = asyncio.get_running_loop()
        here = self._loops.get(loop)
        if here is None or here.pid != os.getpid():
            self.forget_closed_loops()
            here = self._loops[loop] = LoopConnections(self._path, self._back_off, loop)
        return here
