"""`client.limit(...)`: ask before a function runs.

A `def` is asked for by the blocking client and an `async def` by the asyncio one,
whichever of the two the decorator came from, so that an event loop is never blocked.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ._arguments import Key
from ._decision import Decision
from ._errors import RateLimited
from ._limit import Limit

if TYPE_CHECKING:
    from ._client import Client
    from .asyncio import Client as AsyncClient

F = TypeVar("F", bound=Callable[..., Any])
KeyOf = Key | Callable[..., Key | None] | Callable[..., Awaitable[Key | None]]


class Rule:
    """What is asked before each call of a decorated function.

    key:       the key, or a function of the call's arguments that gives it; None from it
               means that this call is not limited
    cost:      permits, or a function of the call's arguments
    on_denied: called with the decision, it gives the result of a denied call; None:
               RateLimited is raised
    """

    def __init__(
        self,
        limit: str | Limit,
        key: KeyOf,
        cost: int | Callable[..., int],
        wait: float,
        on_denied: Callable[[Decision], Any] | None,
    ) -> None:
        self.limit = limit
        self.key = key
        self.cost = cost
        self.wait = wait
        self.on_denied = on_denied

    def asked_of(self, args: Any, named: Any) -> tuple[Any, int]:
        """The key, which may be an awaitable, and the cost."""
        key = self.key(*args, **named) if callable(self.key) else self.key
        cost = self.cost(*args, **named) if callable(self.cost) else self.cost
        return key, cost

    def denied(self, decision: Decision) -> Any:
        if self.on_denied is None:
            raise RateLimited(decision)
        return self.on_denied(decision)


def decorate(
    function: F, rule: Rule, blocking: Callable[[], Client], asynchronous: Callable[[], AsyncClient]
) -> F:
    if not callable(function):
        raise TypeError(f"{function!r} is no function: write limit(...) below @classmethod")
    if is_async(function):
        return _awaiting(function, rule, asynchronous)
    if is_async(rule.key) or is_async(rule.on_denied):
        raise TypeError(f"{function!r} is a plain function: its key and on_denied must be, too")
    return _blocking(function, rule, blocking)


def is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004
    )


def _blocking(function: F, rule: Rule, client: Callable[[], Client]) -> F:
    @functools.wraps(function)
    def limited(*args: Any, **named: Any) -> Any:
        key, cost = rule.asked_of(args, named)
        if key is not None:
            decision = client().acquire(rule.limit, key, cost=cost, wait=rule.wait)
            if not decision:
                return rule.denied(decision)
        return function(*args, **named)

    return limited  # type: ignore[return-value]


def _awaiting(function: F, rule: Rule, client: Callable[[], AsyncClient]) -> F:
    @functools.wraps(function)
    async def limited(*args: Any, **named: Any) -> Any:
        key, cost = rule.asked_of(args, named)
        if inspect.isawaitable(key):
            key = await key
        if key is not None:
            decision = await client().acquire(rule.limit, key, cost=cost, wait=rule.wait)
            if not decision:
                instead = rule.denied(decision)
                return await instead if inspect.isawaitable(instead) else instead
        return await function(*args, **named)

    return limited  # type: ignore[return-value]
