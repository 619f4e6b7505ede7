"""A FastAPI dependency: limits for one route, or one router.

limited = RateLimit("10/minute")

@app.get("/search", dependencies=[Depends(limited)])

Add rlsidecar.asgi.RateLimitMiddleware as well, with or without limits of its own, for
the headers of routes that return a Response: a dependency cannot add any to those.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import HTTPException, Request, Response

from ._arguments import Key
from ._gate import Limits, as_limits, ask_async, item
from .asgi import DECISION, OUTCOMES
from .asgi import client_address as address_in
from .asyncio import Client
from .headers import Style, check_style

KeyOf = Callable[[Request], Key | None] | Callable[[Request], Awaitable[Key | None]]


def client_address(request: Request) -> str | None:
    """The peer's address. None, which is not limited, behind a Unix socket: use what your proxy sends."""
    return address_in(request.scope)


class RateLimit:
    """Asks before the route's function runs. Raises HTTPException 429 with headers when denied.

    limits:  one, or several that are asked together
    key:     a function of the request, async or not; a request it gives None for is not limited
    cost:    permits, or a function of the request
    client:  default one `Client()` for all that name none
    headers: "x", "ietf" or None, see rlsidecar.headers; the middleware, if there is
             one, has its own
    scope:   keeps limits like "10/minute" apart; default the route's path

    The decision is in request.scope["rlsidecar.decision"].
    """

    def __init__(
        self,
        limits: Limits,
        *,
        key: KeyOf = client_address,
        cost: int | Callable[[Request], int] = 1,
        client: Client | None = None,
        headers: Style | None = "x",
        scope: str | None = None,
    ) -> None:
        self._limits = as_limits(limits)
        self._key = key
        self._cost = cost
        self._client = client or _shared()
        self._style = check_style(headers)
        self._scope = scope

    async def __call__(self, request: Request, response: Response) -> None:
        key = self._key(request)
        if inspect.isawaitable(key):
            key = await key
        if key is None:
            return
        cost = self._cost(request) if callable(self._cost) else self._cost
        scope = _path(request) if self._scope is None else self._scope
        outcome = await ask_async(self._client, [item(limit, key, cost, scope) for limit in self._limits])
        request.scope[DECISION] = outcome.decision
        told: list[Any] | None = request.scope.get(OUTCOMES)
        if told is not None:
            told.append(outcome)
        fields = {} if told is not None else dict(outcome.headers(self._style))
        if not outcome.allowed:
            raise HTTPException(429, "Too many requests", headers=fields)
        for name, value in fields.items():
            response.headers.setdefault(name, value)


def _path(request: Request) -> str:
    """The path as the route writes it, so that /users/1 and /users/2 are one."""
    return getattr(request.scope.get("route"), "path", request.url.path)


_clients: list[Client] = []


def _shared() -> Client:
    if not _clients:
        _clients.append(Client())
    return _clients[0]
