"""Django's middleware and decorator, through Django's own handlers, sync and async."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import django_site  # noqa: F401  (configures Django)
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import AsyncClient, Client, override_settings

from rlsidecar import AgentNotRunning
from rlsidecar import django as limits

Get = Callable[..., list[Any]]

MIDDLEWARE = ["rlsidecar.django.RateLimitMiddleware"]


def by_wsgi(*urls: str, **headers: str) -> list[Any]:
    browser = Client()
    return [browser.get(url, headers=headers) for url in urls]


def by_asgi(*urls: str, **headers: str) -> list[Any]:
    async def visiting() -> list[Any]:
        browser = AsyncClient()
        return [await browser.get(url, headers=headers) for url in urls]

    return asyncio.run(visiting())


@pytest.fixture(params=[by_wsgi, by_asgi])
def get(request: pytest.FixtureRequest) -> Get:
    chosen: Get = request.param
    return chosen


@pytest.fixture
def configured(address: str) -> Callable[..., Any]:
    """Settings with the agent's address."""
    return lambda **given: override_settings(
        RLSIDECAR={"ADDRESS": address, "TIMEOUT": 2, "ON_UNAVAILABLE": "raise", **given},
        MIDDLEWARE=MIDDLEWARE if "LIMITS" in given else [],
    )


def codes(answers: list[Any]) -> list[int]:
    return [answer.status_code for answer in answers]


def test_views(get: Get, key: str, configured: Any) -> None:
    with configured():
        answers = get("/plain/1", "/plain/2", "/plain/3", x_user=key)
        assert codes(answers) == [200, 200, 429]
        assert answers[0].content == b"1, 1 left"
        assert answers[0]["X-RateLimit-Limit"] == "2"
        assert answers[2].content == b"Too many requests\n"
        assert 0 < int(answers[2]["Retry-After"]) <= 1800
        assert codes(get("/class", "/class", x_user=key)) == [200, 429]
        assert [answer.content for answer in get("/lenient", "/lenient", x_user=key)] == [b"True", b"False"]
        assert codes(get(*["/policies"] * 4, x_user=key)) == [200, 200, 200, 429]
        assert codes(get(*["/plain/1"] * 4)) == [200] * 4


def test_async_and_sync_views_share_a_scope(get: Get, key: str, configured: Any) -> None:
    with configured():
        assert codes(get("/async", "/costly", "/async", "/async", x_user=key)) == [200, 429, 200, 429]


def test_the_middleware(get: Get, key: str, configured: Any) -> None:
    given = {"LIMITS": ["3/hour", "wide"], "KEY": lambda _: key, "SCOPE": "site"}
    with configured(**given, ON_DENIED="django_site.sorry"):
        answers = get("/stream", "/moved", "/nothing", "/moved")
    assert codes(answers) == [200, 302, 404, 429]
    assert answers[0]["X-RateLimit-Limit"] == "7"
    assert [answer["X-RateLimit-Remaining"] for answer in answers] == ["2", "1", "0", "0"]
    assert (answers[3].content, answers[3]["Retry-After"]) == (b"3 only", "7")


def test_the_middleware_and_a_decorator(get: Get, key: str, configured: Any) -> None:
    """The view's own limit is the one that is told, and ietf is a setting."""
    with configured(LIMITS="wide", KEY="django_site.user", HEADERS="ietf"):
        [answer] = get("/plain/1", x_user=key)
    assert answer["RateLimit"].startswith('"2/hour";r=1;')


def test_a_setting_that_is_none() -> None:
    with (
        override_settings(RLSIDECAR={"ADRESS": "/x"}),
        pytest.raises(ImproperlyConfigured, match="ADRESS: there are ADDRESS, APP"),
    ):
        limits._configured()


@pytest.mark.parametrize(("mode", "code"), [("allow", 200), ("deny", 429), ("raise", 500)])
def test_c20_without_an_agent(get: Get, path: Path, mode: str, code: int) -> None:
    given = {"ADDRESS": str(path), "ON_UNAVAILABLE": mode}
    urls = ["/plain/1", "/async", "/class", "/policies"]

    with override_settings(RLSIDECAR=given):
        if mode == "raise":
            for url in urls:
                with pytest.raises(AgentNotRunning):
                    get(url, x_user="k")
            return
        assert codes(get(*urls, x_user="k")) == [code] * 4
    with override_settings(RLSIDECAR={**given, "LIMITS": "api", "KEY": lambda _: "k"}, MIDDLEWARE=MIDDLEWARE):
        answers = get("/stream")
        assert codes(answers) == [code]
        assert answers[0].get("X-RateLimit-Limit") == ("7" if mode == "allow" else None)
