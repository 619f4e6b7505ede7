"""WSGI middleware: any WSGI application behind limits.

application = RateLimitMiddleware(application, limits="api")
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ._arguments import Key
from ._client import Client
from ._gate import Limits, Outcome, as_limits, ask, item
from .headers import Style, check_style

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

DECISION = "rlsidecar.decision"


def client_address(environ: WSGIEnvironment) -> str | None:
    """The peer's address. None, which is not limited, behind a Unix socket: use what your proxy sends."""
    return environ.get("REMOTE_ADDR") or None


def too_many_requests(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
    start_response("429 Too Many Requests", [("Content-Type", "text/plain; charset=utf-8")])
    return [b"Too many requests\n"]


class RateLimitMiddleware:
    """Asks for each request; passes it on, or answers 429 without calling the application.

    limits:    one, or several that are asked together
    key:       a function of the environ; a request it gives None for is not limited
    client:    default `Client()`
    headers:   "x", "ietf" or None, see rlsidecar.headers
    scope:     keeps limits like "10/minute" apart from those of other applications
    on_denied: the WSGI application that answers instead; headers are added to its response

    The decision is in environ["rlsidecar.decision"]. In mode "raise", Unavailable goes
    through to the server.
    """

    def __init__(
        self,
        application: WSGIApplication,
        limits: Limits,
        *,
        key: Callable[[WSGIEnvironment], Key | None] = client_address,
        client: Client | None = None,
        headers: Style | None = "x",
        scope: str = "",
        on_denied: WSGIApplication = too_many_requests,
    ) -> None:
        self._application = application
        self._limits = as_limits(limits)
        self._key = key
        self._client = client or Client()
        self._style = check_style(headers)
        self._scope = scope
        self._on_denied = on_denied

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        key = self._key(environ)
        if key is None or not self._limits:
            return self._application(environ, start_response)
        outcome = ask(self._client, [item(limit, key, scope=self._scope) for limit in self._limits])
        environ[DECISION] = outcome.decision
        application = self._application if outcome.allowed else self._on_denied
        return application(environ, self._telling(outcome, start_response))

    def _telling(self, outcome: Outcome, start_response: StartResponse) -> StartResponse:
        def start(status: str, fields: list[tuple[str, str]], *exc_info: Any) -> Any:
            there = {name.lower() for name, _ in fields}
            more = [field for field in outcome.headers(self._style) if field[0].lower() not in there]
            return start_response(status, fields + more, *exc_info)

        return start
