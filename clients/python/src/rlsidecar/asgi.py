"""Pure ASGI middleware: Starlette, FastAPI, Django, Litestar or a bare application behind limits.

app = RateLimitMiddleware(app, limits="api")
app.add_middleware(RateLimitMiddleware, limits="api")  # Starlette and FastAPI
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from ._arguments import Key
from ._gate import Limits, Outcome, as_limits, ask_async, item
from .asyncio import Client
from .headers import Style, check_style

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
KeyOf = Callable[[Scope], Key | None] | Callable[[Scope], Awaitable[Key | None]]

OUTCOMES = "rlsidecar.outcomes"
DECISION = "rlsidecar.decision"


def client_address(scope: Scope) -> str | None:
    """The peer's address. None, which is not limited, behind a Unix socket: use what your proxy sends."""
    client = scope.get("client")
    return client[0] if client else None


async def too_many_requests(scope: Scope, receive: Receive, send: Send) -> None:
    body = b"Too many requests\n"
    fields = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 429, "headers": fields})
    await send({"type": "http.response.body", "body": body})


class RateLimitMiddleware:
    """Asks for each HTTP request; passes it on, or answers 429 without calling the application.

    limits:    one, several that are asked together, or none: then it only adds the
               headers of what rlsidecar.fastapi.RateLimit asked
    key:       a function of the scope, async or not; a request it gives None for is not limited
    client:    default `Client()`
    headers:   "x", "ietf" or None, see rlsidecar.headers
    scope:     keeps limits like "10/minute" apart from those of other applications
    on_denied: the ASGI application that answers instead; headers are added to its response

    The decision is in scope["rlsidecar.decision"]. In mode "raise", Unavailable goes
    through to the server. WebSockets and lifespan events pass.
    """

    def __init__(
        self,
        app: Application,
        limits: Limits = (),
        *,
        key: KeyOf = client_address,
        client: Client | None = None,
        headers: Style | None = "x",
        scope: str = "",
        on_denied: Application = too_many_requests,
    ) -> None:
        self._app = app
        self._limits = as_limits(limits)
        self._key = key
        self._client = client or Client()
        self._style = check_style(headers)
        self._scope = scope
        self._on_denied = on_denied

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        outcomes: list[Outcome] = scope.setdefault(OUTCOMES, [])
        outcome = await self._ask(scope)
        if outcome is not None:
            outcomes.append(outcome)
            scope[DECISION] = outcome.decision
        app = self._on_denied if outcome is not None and not outcome.allowed else self._app
        await app(scope, receive, self._telling(outcomes, send))

    async def _ask(self, scope: Scope) -> Outcome | None:
        if not self._limits:
            return None
        key = self._key(scope)
        if inspect.isawaitable(key):
            key = await key
        if key is None:
            return None
        return await ask_async(self._client, [item(limit, key, scope=self._scope) for limit in self._limits])

    def _telling(self, outcomes: list[Outcome], send: Send) -> Send:
        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start" and outcomes:
                message = {**message, "headers": self._with(outcomes, list(message.get("headers", [])))}
            await send(message)

        return tell

    def _with(self, outcomes: list[Outcome], fields: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        there = {name.lower() for name, _ in fields}
        outcome = Outcome(True, tuple(told for outcome in outcomes for told in outcome.told))
        more = [(name.lower().encode(), value.encode()) for name, value in outcome.headers(self._style)]
        return fields + [field for field in more if field[0] not in there]
