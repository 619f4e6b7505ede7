"""The ASGI middleware and the FastAPI dependency, on real Starlette and FastAPI applications."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import Depends, FastAPI, Request
from fastapi.responses import RedirectResponse, StreamingResponse

from rlsidecar import AgentNotRunning
from rlsidecar.asgi import RateLimitMiddleware
from rlsidecar.asyncio import Client
from rlsidecar.fastapi import RateLimit


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    client = Client(address, timeout=2, on_unavailable="raise")
    yield client
    client.forget_closed_loops()


def visit(app: Any, *urls: str, headers: dict[str, str] | None = None, peer: Any = ("192.0.2.7", 5)) -> Any:
    """The responses, one after another, in one loop."""

    async def visiting() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app, client=peer)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as browser:
            return [await browser.get(url, headers=headers) for url in urls]

    return asyncio.run(visiting())


def codes(answers: list[httpx.Response]) -> list[int]:
    return [answer.status_code for answer in answers]


def shop() -> FastAPI:
    app = FastAPI()

    @app.get("/")
    async def index(request: Request) -> Any:
        decision = request.scope.get("rlsidecar.decision")
        return decision and decision.limit

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        return StreamingResponse(iter(["a", "b"]), headers={"X-RateLimit-Limit": "7"})

    @app.get("/moved")
    async def moved() -> RedirectResponse:
        return RedirectResponse("/")

    return app


def test_allowed_then_denied(client: Client, key: str) -> None:
    app = shop()
    app.add_middleware(RateLimitMiddleware, limits="api", key=lambda _: key, client=client)
    answers = visit(app, "/", "/stream", "/moved", "/")
    assert codes(answers) == [200, 200, 307, 429]
    assert answers[0].json() == 3
    assert answers[1].text == "ab"
    assert answers[1].headers.get_list("x-ratelimit-limit") == ["7"]
    assert [answer.headers["x-ratelimit-remaining"] for answer in answers] == ["2", "1", "0", "0"]
    assert 1100 < int(answers[3].headers["retry-after"]) <= 1200
    assert answers[3].text == "Too many requests\n"


def test_async_keys_and_requests_without_one(client: Client, key: str) -> None:
    async def api_key(scope: Any) -> str | None:
        await asyncio.sleep(0)
        given = dict(scope["headers"]).get(b"x-api-key")
        return given and f"{key}:{given.decode()}"

    app = RateLimitMiddleware(shop(), ["1/hour", "wide"], key=api_key, client=client, headers="ietf")
    assert codes(visit(app, "/", "/", headers={"X-Api-Key": "a"})) == [200, 429]
    assert codes(visit(app, "/", "/", headers={"X-Api-Key": "b"})) == [200, 429]
    answers = visit(app, "/", "/")
    assert codes(answers) == [200, 200]
    assert "ratelimit" not in answers[0].headers


def test_the_address_is_the_key(client: Client, key: str) -> None:
    app = RateLimitMiddleware(shop(), "1/hour", client=client, scope=key)
    assert codes(visit(app, "/", "/")) == [200, 429]
    assert codes(visit(app, "/", peer=("192.0.2.8", 5))) == [200]
    assert codes(visit(app, "/", "/", peer=None)) == [200, 200]


def test_what_is_no_http_passes() -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    wrapped = RateLimitMiddleware(app, "api", client=Client("/nowhere"))
    for kind in ("lifespan", "websocket"):
        asyncio.run(wrapped({"type": kind}, None, None))  # type: ignore[arg-type]
    assert seen == ["lifespan", "websocket"]


def limited_shop(client: Client, key: str, **options: Any) -> FastAPI:
    app = shop()

    async def user(request: Request) -> str | None:
        return request.headers.get("x-user") and f"{key}:{request.headers['x-user']}"

    @app.get("/items/{item}", dependencies=[Depends(RateLimit("2/hour", key=user, client=client, **options))])
    async def items(item: int) -> int:
        return item

    @app.get("/redirect", dependencies=[Depends(RateLimit("2/hour", key=user, client=client, **options))])
    async def redirect() -> RedirectResponse:
        return RedirectResponse("/")

    @app.get("/policy", dependencies=[Depends(RateLimit(["api", "wide"], key=user, client=client))])
    async def policy() -> str:
        return "x"

    return app


def test_a_dependency_counts_for_each_route(client: Client, key: str) -> None:
    app, user = limited_shop(client, key), {"X-User": "u"}
    answers = visit(app, "/items/1", "/items/2", "/items/1", headers=user)
    assert codes(answers) == [200, 200, 429]
    assert answers[0].headers["x-ratelimit-remaining"] == "1"
    assert 0 < int(answers[2].headers["retry-after"]) <= 1800
    assert answers[2].json() == {"detail": "Too many requests"}
    assert codes(visit(app, "/redirect", headers=user)) == [307]
    assert codes(visit(app, *["/policy"] * 4, headers=user)) == [200, 200, 200, 429]
    assert codes(visit(app, *["/items/1"] * 4)) == [200] * 4


def test_a_dependency_with_the_middleware(client: Client, key: str) -> None:
    """Headers on a Response that the route makes itself, said once."""
    app, user = limited_shop(client, key), {"X-User": "u"}
    app.add_middleware(RateLimitMiddleware, client=client, headers="ietf")
    answers = visit(app, "/redirect", "/redirect", "/redirect", headers=user)
    assert codes(answers) == [307, 307, 429]
    for answer, left in zip(answers, "100", strict=True):
        assert answer.headers.get_list("ratelimit")[0].startswith(f'"2/hour";r={left};t=')
        assert "x-ratelimit-limit" not in answer.headers
    assert len(answers[2].headers.get_list("retry-after")) == 1


def test_the_cost_of_a_request(client: Client, key: str) -> None:
    app = limited_shop(client, key, cost=lambda request: int(request.query_params["cost"]), scope=key)
    user = {"X-User": "u"}
    answers = visit(app, "/items/1?cost=2", "/items/1?cost=1", "/items/1?cost=3", headers=user)
    assert codes(answers) == [200, 429, 429]
    assert "retry-after" not in answers[2].headers


@pytest.mark.parametrize(("mode", "code"), [("allow", 200), ("deny", 429)])
def test_c20_without_an_agent(path: Path, mode: Any, code: int) -> None:
    client = Client(path, on_unavailable=mode)
    answers = visit(RateLimitMiddleware(shop(), "api", client=client), "/")
    answers += visit(limited_shop(client, "k"), "/items/1", "/policy", headers={"X-User": "u"})
    assert codes(answers) == [code] * 3
    assert not any("x-ratelimit-limit" in answer.headers for answer in answers)


def test_c20_without_an_agent_raise(path: Path) -> None:
    client = Client(path, on_unavailable="raise")
    for app in (RateLimitMiddleware(shop(), "api", client=client), limited_shop(client, "k")):
        with pytest.raises(AgentNotRunning):
            visit(app, "/items/1", headers={"X-User": "u"})
