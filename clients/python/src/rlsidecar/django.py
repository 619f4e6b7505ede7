"""Django: a middleware for all requests, a decorator for single views, both sync and async.

MIDDLEWARE = ["rlsidecar.django.RateLimitMiddleware", ...]
RLSIDECAR = {"LIMITS": "api"}

@rate_limit("10/minute")
def search(request): ...
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from functools import cached_property, lru_cache, wraps
from typing import Any, TypeVar

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.http import HttpRequest, HttpResponse
from django.utils.module_loading import import_string

from ._arguments import Key
from ._client import Client
from ._decision import Decision
from ._gate import Asked, Limits, Outcome, as_limits, ask, ask_async, item
from .asyncio import Client as AsyncClient
from .headers import check_style

__all__ = ["RateLimitMiddleware", "client_address", "rate_limit", "too_many_requests"]

F = TypeVar("F", bound=Callable[..., Any])
KeyOf = Callable[[HttpRequest], Key | None] | Callable[[HttpRequest], Awaitable[Key | None]]

SETTINGS = {"ADDRESS", "TIMEOUT", "ON_UNAVAILABLE", "APP", "LIMITS", "KEY", "HEADERS", "SCOPE", "ON_DENIED"}


def client_address(request: HttpRequest) -> str | None:
    """The peer's address. None, which is not limited, behind a Unix socket: use what your proxy sends."""
    return request.META.get("REMOTE_ADDR") or None


def too_many_requests(request: HttpRequest, decision: Decision) -> HttpResponse:
    return HttpResponse("Too many requests\n", status=429, content_type="text/plain; charset=utf-8")


class _Configured:
    """The setting RLSIDECAR.

    ADDRESS, TIMEOUT, ON_UNAVAILABLE, APP: as of `rlsidecar.Client`
    LIMITS:    of the middleware: one, or several that are asked together
    KEY:       a function of the request or its dotted path, async where the views are;
               default `client_address`. A request it gives None for is not limited
    HEADERS:   "x", "ietf" or None, see rlsidecar.headers
    SCOPE:     of the middleware: keeps limits like "10/minute" apart from those of other
               applications
    ON_DENIED: a function of request and decision that makes the response, or its dotted
               path; default `too_many_requests`
    """

    def __init__(self, given: dict[str, Any]) -> None:
        if unknown := set(given) - SETTINGS:
            allowed = ", ".join(sorted(SETTINGS))
            raise ImproperlyConfigured(f"RLSIDECAR {', '.join(sorted(unknown))}: there are {allowed}")
        self._address = given.get("ADDRESS")
        self._options: dict[str, Any] = {
            name.lower(): given.get(name) for name in ("TIMEOUT", "ON_UNAVAILABLE", "APP")
        }
        self.limits = as_limits(given.get("LIMITS", ()))
        self.key = _function(given.get("KEY", client_address))
        self.style = check_style(given.get("HEADERS", "x"))
        self.scope = given.get("SCOPE", "")
        self.on_denied = _function(given.get("ON_DENIED", too_many_requests))

    @cached_property
    def client(self) -> Client:
        return Client(self._address, **self._options)

    @cached_property
    def async_client(self) -> AsyncClient:
        return AsyncClient(self._address, **self._options)

    def close(self) -> None:
        """For tests, which change settings: close what no loop uses any more."""
        self.client.close()
        self.async_client.forget_closed_loops()


def _function(given: Any) -> Callable[..., Any]:
    return import_string(given) if isinstance(given, str) else given  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _configured() -> _Configured:
    return _Configured(getattr(settings, "RLSIDECAR", {}))


def _forget(*, setting: str, **_: Any) -> None:
    if setting == "RLSIDECAR":
        if _configured.cache_info().currsize:
            _configured().close()
        _configured.cache_clear()


setting_changed.connect(_forget)


class _Gate:
    """What the middleware, or one decorator, asks of a request."""

    def __init__(
        self,
        limits: Iterable[Any],
        key: KeyOf | None,
        cost: int | Callable[[HttpRequest], int],
        scope: str,
        methods: Iterable[str] | None = None,
        block: bool = True,
    ) -> None:
        self._limits = tuple(limits)
        self._key = key
        self._cost = cost
        self._scope = scope
        self._methods = methods and {method.upper() for method in methods}
        self._block = block

    def run(self, request: HttpRequest, view: Callable[[], HttpResponse]) -> HttpResponse:
        items = self._items(request, self._key_of(request))
        if not items:
            return view()
        outcome = ask(_configured().client, items)
        denied = self._note(request, outcome)
        return _telling(outcome, _configured().on_denied(request, outcome.decision) if denied else view())

    async def run_async(
        self, request: HttpRequest, view: Callable[[], Awaitable[HttpResponse]]
    ) -> HttpResponse:
        key = self._key_of(request)
        items = self._items(request, await key if inspect.isawaitable(key) else key)
        if not items:
            return await view()
        outcome = await ask_async(_configured().async_client, items)
        denied = self._note(request, outcome)
        response = _configured().on_denied(request, outcome.decision) if denied else view()
        return _telling(outcome, await response if inspect.isawaitable(response) else response)

    def _key_of(self, request: HttpRequest) -> Any:
        return (self._key or _configured().key)(request)

    def _items(self, request: HttpRequest, key: Key | None) -> list[Asked]:
        request.rate_limit = getattr(request, "rate_limit", None)
        if key is None or (self._methods and request.method not in self._methods):
            return []
        cost = self._cost(request) if callable(self._cost) else self._cost
        return [item(limit, key, cost, self._scope) for limit in self._limits]

    def _note(self, request: HttpRequest, outcome: Outcome) -> bool:
        """Leave the decision on the request; whether the view must not run."""
        request.rate_limit = outcome.decision
        return self._block and not outcome.allowed


def _telling(outcome: Outcome, response: HttpResponse) -> HttpResponse:
    for name, value in outcome.headers(_configured().style):
        response.headers.setdefault(name, value)
    return response


class RateLimitMiddleware:
    """Asks for each request before any view; answers a denied one with ON_DENIED, a 429.

    In mode "raise", Unavailable goes to Django's handling of exceptions, a 500. The
    decision is in `request.rate_limit`.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self._get_response = get_response
        self._async = iscoroutinefunction(get_response)
        if self._async:
            markcoroutinefunction(self)
        self._gate = _Gate(_configured().limits, None, 1, _configured().scope)

    def __call__(self, request: HttpRequest) -> Any:
        if self._async:
            return self._gate.run_async(request, lambda: self._get_response(request))
        return self._gate.run(request, lambda: self._get_response(request))


def rate_limit(
    limits: Limits,
    *,
    key: KeyOf | None = None,
    cost: int | Callable[[HttpRequest], int] = 1,
    scope: str | None = None,
    methods: Iterable[str] | None = None,
    block: bool = True,
) -> Callable[[F], F]:
    """Decorates a view, sync or async; with `method_decorator`, the method of a view class.

    limits:  one, or several that are asked together
    key:     a function of the request, default KEY of the settings
    cost:    permits, or a function of the request
    scope:   keeps limits like "10/minute" apart; default the view's name
    methods: HTTP methods to ask for; default all
    block:   False: run a denied view, too, and let it look at `request.rate_limit`
    """
    checked = as_limits(limits)

    def decorate(view: F) -> F:
        name = f"{view.__module__}.{view.__qualname__}"
        gate = _Gate(checked, key, cost, name if scope is None else scope, methods, block)
        if iscoroutinefunction(view):

            @wraps(view)
            async def limited_async(request: HttpRequest, *args: Any, **named: Any) -> HttpResponse:
                return await gate.run_async(request, lambda: view(request, *args, **named))

            return limited_async  # type: ignore[return-value]

        @wraps(view)
        def limited(request: HttpRequest, *args: Any, **named: Any) -> HttpResponse:
            return gate.run(request, lambda: view(request, *args, **named))

        return limited  # type: ignore[return-value]

    return decorate
