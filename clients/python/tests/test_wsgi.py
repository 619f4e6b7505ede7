"""The WSGI middleware around a real application, and what passes through it untouched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import Client as Browser
from werkzeug.wrappers import Response

from rlsidecar import AgentNotRunning, Client
from rlsidecar.wsgi import DECISION, RateLimitMiddleware


def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    if environ["PATH_INFO"] == "/own":
        start_response("200 OK", [("x-ratelimit-limit", "7"), ("Retry-After", "9")])
        return [b"own"]
    if environ["PATH_INFO"] == "/moved":
        start_response("302 Found", [("Location", "/")])
        return [b""]
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(environ.get(DECISION) and environ[DECISION].limit).encode()]


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address, timeout=2, on_unavailable="raise") as client:
        yield client


def browser(client: Client, key: str | None, limits: Any = "api", **options: Any) -> Browser:
    return Browser(
        RateLimitMiddleware(application, limits, key=lambda _: key, client=client, **options), Response
    )


def test_allowed_then_denied(client: Client, key: str) -> None:
    visitor = browser(client, key)
    answers = [visitor.get("/") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[0].text == "3"
    assert answers[0].headers["X-RateLimit-Remaining"] == "2"
    assert answers[3].text == "Too many requests\n"
    assert 1100 < int(answers[3].headers["Retry-After"]) <= 1200


def test_redirects_and_headers_that_are_there(client: Client, key: str) -> None:
    visitor = browser(client, key)
    assert visitor.get("/moved").headers["X-RateLimit-Limit"] == "3"
    own = visitor.get("/own")
    assert own.headers.getlist("X-RateLimit-Limit") == ["7"]
    assert own.headers["X-RateLimit-Remaining"] == "1"
    assert own.headers["Retry-After"] == "9"


def test_ietf_headers(client: Client, key: str) -> None:
    headers = browser(client, key, "10/minute", headers="ietf").get("/").headers
    assert headers["RateLimit-Policy"] == '"10/minute";q=10;w=60'
    assert headers["RateLimit"].startswith('"10/minute";r=9;t=')
    assert "X-RateLimit-Limit" not in headers


def test_the_body_is_not_touched(client: Client, key: str) -> None:
    """A stream stays one: the very iterable of the application comes back."""
    produced: list[int] = []

    def stream() -> Iterator[bytes]:
        for number in range(3):
            produced.append(number)
            yield b"x"

    body = stream()

    def streaming(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("200 OK", [])
        return body

    started: list[Any] = []
    wrapped = RateLimitMiddleware(streaming, "api", key=lambda _: key, client=client)
    answer = wrapped({}, lambda status, fields: started.append((status, dict(fields))))  # type: ignore[arg-type]
    assert answer is body
    assert produced == []
    assert started[0][1]["X-RateLimit-Remaining"] == "2"


def test_no_key_and_no_limits(client: Client, key: str) -> None:
    assert browser(client, None).get("/").text == "None"
    assert browser(client, key, ()).get("/").text == "None"


def test_several_limits_are_charged_together_or_not_at_all(client: Client, key: str) -> None:
    visitor = browser(client, key, ["api", "1000/hour"], scope="shop")
    assert [visitor.get("/").status_code for _ in range(5)] == [200, 200, 200, 429, 429]
    assert client.peek("1000/hour", f"shop|1000/3600000|{key}").remaining == 997


def test_the_address_is_the_key(address: str, client: Client) -> None:
    visitor = Browser(RateLimitMiddleware(application, "2/hour", client=client, scope="addr"), Response)
    codes = [visitor.get("/", environ_base={"REMOTE_ADDR": "192.0.2.1"}).status_code for _ in range(3)]
    assert codes == [200, 200, 429]
    assert visitor.get("/", environ_base={"REMOTE_ADDR": "192.0.2.2"}).status_code == 200
    assert visitor.get("/", environ_base={"REMOTE_ADDR": ""}).text == "None"


def test_another_answer(client: Client, key: str) -> None:
    def sorry(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        start_response("503 Slow Down", [])
        return [b"sorry"]

    visitor = browser(client, key, "1/hour", on_denied=sorry)
    assert [visitor.get("/").status_code for _ in range(2)] == [200, 503]


@pytest.mark.parametrize(("mode", "code"), [("allow", 200), ("deny", 429)])
def test_c20_without_an_agent(path: Path, mode: Any, code: int) -> None:
    answer = browser(Client(path, on_unavailable=mode), "k").get("/")
    assert answer.status_code == code
    assert "X-RateLimit-Limit" not in answer.headers


def test_c20_without_an_agent_raise(path: Path) -> None:
    with pytest.raises(AgentNotRunning):
        browser(Client(path, on_unavailable="raise"), "k").get("/")
