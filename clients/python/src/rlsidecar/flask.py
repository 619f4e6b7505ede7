"""A Flask extension, with the names that users of Flask-Limiter know.

limiter = Limiter(app, key_func=get_remote_address, default_limits=["100/minute"])

@app.get("/search")
@limiter.limit("10/minute")
def search(): ...
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import flask
from werkzeug.exceptions import TooManyRequests

from ._arguments import Key, check_limit
from ._client import Client
from ._decision import Decision
from ._gate import Asked, ask, item
from ._limit import Limit
from .headers import Style, Told, check_style, tightest
from .headers import headers as headers_of

__all__ = ["Limiter", "RateLimitExceeded", "get_remote_address"]

F = TypeVar("F", bound=Callable[..., Any] | flask.Blueprint)
KeyFunc = Callable[[], Key | None]
Given = str | Limit | Iterable[str | Limit]

_WORDS = re.compile(r"^([0-9]+)\s+per\s+([0-9]+\s+)?([a-z]+)$", re.IGNORECASE)
_RULES = "_rlsidecar_rules"


class RateLimitExceeded(TooManyRequests):
    """The 429 of a denied request; an errorhandler for it, or for 429, makes another response.

    decision: of the limit that denied
    """

    def __init__(self, decision: Decision) -> None:
        super().__init__("Too many requests")
        self.decision = decision


def get_remote_address() -> str | None:
    """The peer's address; behind a proxy, apply werkzeug's ProxyFix. None is not limited."""
    return flask.request.remote_addr


class _Rule:
    """What one decorator, or the list of default limits, asks of a request."""

    def __init__(
        self,
        limits: Given,
        key_func: KeyFunc | None = None,
        cost: int | Callable[[], int] = 1,
        scope: str | None = None,
        methods: Sequence[str] | None = None,
        exempt_when: Callable[[], bool] | None = None,
    ) -> None:
        self._limits = _each(limits)
        self._key_func = key_func
        self._cost = cost
        self._scope = scope
        self._methods = methods and {method.upper() for method in methods}
        self._exempt_when = exempt_when

    def items(self, default_key: KeyFunc) -> list[Asked]:
        if self._methods and flask.request.method not in self._methods:
            return []
        if self._exempt_when is not None and self._exempt_when():
            return []
        key = (self._key_func or default_key)()
        if key is None:
            return []
        cost = self._cost() if callable(self._cost) else self._cost
        scope = flask.request.endpoint or "" if self._scope is None else self._scope
        return [item(limit, key, cost, scope) for limit in self._limits]


class Limiter:
    """Limits for the views of an application, asked together before the view runs.

    key_func:           gives the key of the current request; None: not limited
    default_limits:     for each view, by itself, that has no limits of its own
    application_limits: for all views together, as well
    client:             default `Client()`
    headers:            "x", "ietf" or None, see rlsidecar.headers
    enabled:            False: ask nothing

    A limit is a policy's name, a `Limit`, or text: "10/minute", "10 per minute", or
    several of them with ";" between. A policy is one bucket per key wherever it is used;
    text and `Limit` count for each endpoint by itself unless they are shared.

    A denied request raises RateLimitExceeded, a 429. In mode "raise", Unavailable goes
    to the application's errorhandler.
    """

    def __init__(
        self,
        app: flask.Flask | None = None,
        *,
        key_func: KeyFunc = get_remote_address,
        default_limits: Given = (),
        application_limits: Given = (),
        client: Client | None = None,
        headers: Style | None = "x",
        enabled: bool = True,
    ) -> None:
        self.client = client or Client()
        self.enabled = enabled
        self._key_func = key_func
        self._default = _Rule(default_limits)
        self._application = _Rule(application_limits, scope="application")
        self._style = check_style(headers)
        self._exempt: set[Any] = set()
        self._blueprints: dict[str, list[_Rule]] = {}
        if app is not None:
            self.init_app(app)

    def init_app(self, app: flask.Flask) -> None:
        app.extensions["rlsidecar"] = self
        app.before_request(self._before_request)
        app.after_request(self._after_request)

    def limit(
        self,
        limits: Given,
        *,
        key_func: KeyFunc | None = None,
        cost: int | Callable[[], int] = 1,
        methods: Sequence[str] | None = None,
        exempt_when: Callable[[], bool] | None = None,
    ) -> Callable[[F], F]:
        """Limits for one view, in place of the default ones. Write it below `@app.route`.

        Also for a function that a view calls, and for all views of a Blueprint:
        `limiter.limit("10/minute")(blueprint)`.
        """
        return self._decorator(_Rule(limits, key_func, cost, None, methods, exempt_when))

    def shared_limit(
        self,
        limits: Given,
        scope: str,
        *,
        key_func: KeyFunc | None = None,
        cost: int | Callable[[], int] = 1,
        methods: Sequence[str] | None = None,
        exempt_when: Callable[[], bool] | None = None,
    ) -> Callable[[F], F]:
        """As `limit`; all views with the same limit and scope count together."""
        return self._decorator(_Rule(limits, key_func, cost, scope, methods, exempt_when))

    def exempt(self, view: F) -> F:
        """A view, or all views of a Blueprint, without default and application limits."""
        self._exempt.add(view.name if isinstance(view, flask.Blueprint) else view)
        return view

    @property
    def current_decision(self) -> Decision | None:
        """Of the current request: the decision that denied, or the one with the smallest part left."""
        decisions = [decision for _, decision in _this_request().told]
        return tightest(decisions) if decisions else None

    def _decorator(self, rule: _Rule) -> Callable[[F], F]:
        def decorate(view: F) -> F:
            if isinstance(view, flask.Blueprint):
                self._blueprints.setdefault(view.name, []).append(rule)
                return view

            @functools.wraps(view)
            def limited(*args: Any, **named: Any) -> Any:
                self._ask([rule])
                return flask.current_app.ensure_sync(view)(*args, **named)

            setattr(limited, _RULES, [rule, *getattr(view, _RULES, [])])
            return limited  # type: ignore[return-value]

        return decorate

    def _before_request(self) -> None:
        view = flask.current_app.view_functions.get(flask.request.endpoint or "")
        if view is None or flask.request.endpoint == "static":
            return
        blueprints = flask.request.blueprints
        own = [
            *getattr(view, _RULES, []),
            *(r for name in blueprints for r in self._blueprints.get(name, [])),
        ]
        if self._exempt.isdisjoint({*_unwrapped(view), *blueprints}):
            own = [self._application, *(own or [self._default])]
        self._ask(own)

    def _ask(self, rules: list[_Rule]) -> None:
        """Ask what this request was not asked yet, all at once."""
        this = _this_request()
        new = [rule for rule in rules if rule not in this.asked]
        this.asked.update(new)
        items = [item for rule in new for item in rule.items(self._key_func)] if self.enabled else []
        if not items:
            return
        outcome = ask(self.client, items)
        this.told += outcome.told
        if not outcome.allowed:
            raise RateLimitExceeded(outcome.decision)

    def _after_request(self, response: flask.Response) -> flask.Response:
        for name, value in headers_of(_this_request().told, self._style):
            response.headers.setdefault(name, value)
        return response


class _Request:
    """What was asked in one request."""

    def __init__(self) -> None:
        self.asked: set[_Rule] = set()
        self.told: tuple[Told, ...] = ()


def _this_request() -> _Request:
    """Kept with the request, for flask.g may outlive it."""
    this: _Request = flask.request.environ.setdefault("rlsidecar.flask", _Request())
    return this


def _unwrapped(view: Any) -> Iterable[Any]:
    """The function and what it wraps, and the class of a class-based view."""
    yield getattr(view, "view_class", None)
    while view is not None:
        yield view
        view = getattr(view, "__wrapped__", None)


def _each(limits: Given) -> list[str | Limit]:
    given = [limits] if isinstance(limits, (str, Limit)) else list(limits)
    each = [limit for one in given for limit in (_read(one) if isinstance(one, str) else [one])]
    for limit in each:
        check_limit(limit)
    return each


def _read(text: str) -> list[str]:
    """ "10 per minute;100 per hour" as ["10/minute", "100/hour"]."""
    parts = [part.strip() for part in text.split(";")]
    return [_WORDS.sub(_slash, part) for part in parts if part]


def _slash(words: re.Match[str]) -> str:
    return f"{words[1]}/{words[2] or ''}{words[3].lower()}"
