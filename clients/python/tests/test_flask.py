"""The Flask extension on real Flask applications."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flask
import pytest
from flask.views import MethodView

from rlsidecar import AgentNotRunning, Client, Limit
from rlsidecar.flask import Limiter, RateLimitExceeded, get_remote_address


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address, timeout=2, on_unavailable="raise") as client:
        yield client


def app_and_limiter(client: Client, key: str, **options: Any) -> tuple[flask.Flask, Limiter]:
    app = flask.Flask("shop")
    return app, Limiter(app, key_func=lambda: key, client=client, **options)


def codes(app: flask.Flask, url: str, times: int, **options: Any) -> list[int]:
    browser = app.test_client()
    return [browser.open(url, **options).status_code for _ in range(times)]


def test_a_view_with_a_limit(client: Client, key: str) -> None:
    app, limiter = app_and_limiter(client, key)

    @app.get("/search/<int:page>")
    @limiter.limit("2 per hour")
    def search(page: int) -> str:
        assert limiter.current_decision is not None
        return f"{page}, {limiter.current_decision.remaining} left"

    browser = app.test_client()
    first = browser.get("/search/7")
    assert first.text == "7, 1 left"
    assert first.headers["X-RateLimit-Limit"] == "2"
    assert codes(app, "/search/8", 2) == [200, 429]
    denied = browser.get("/search/7")
    assert int(denied.headers["Retry-After"]) <= 1800
    assert denied.headers["X-RateLimit-Remaining"] == "0"


def test_default_limits_are_for_each_view_by_itself(client: Client, key: str) -> None:
    app, limiter = app_and_limiter(client, key, default_limits=["2/hour;1000/day"])
    app.add_url_rule("/a", "a", lambda: "a")
    app.add_url_rule("/b", "b", lambda: "b")
    app.add_url_rule("/own", "own", limiter.limit("1/hour")(lambda: "own"))
    app.add_url_rule("/free", "free", limiter.exempt(lambda: "free"))
    assert codes(app, "/a", 3) == [200, 200, 429]
    assert codes(app, "/b", 3) == [200, 200, 429]
    assert codes(app, "/own", 2) == [200, 429]
    assert codes(app, "/free", 4) == [200] * 4
    assert codes(app, "/none", 3) == [404] * 3


def test_a_policy_is_one_bucket_wherever_it_is_used(client: Client, key: str) -> None:
    app, limiter = app_and_limiter(client, key)
    app.add_url_rule("/a", "a", limiter.limit("api")(lambda: "a"))
    app.add_url_rule("/b", "b", limiter.limit("api")(lambda: "b"))
    assert codes(app, "/a", 2) == [200, 200]
    assert codes(app, "/b", 2) == [200, 429]
    assert client.peek("api", key).remaining == 0


def test_shared_and_application_limits(client: Client, key: str) -> None:
    app, limiter = app_and_limiter(client, key, application_limits=[Limit.per_hour(4)])
    shared = limiter.shared_limit("2/hour", scope="reads")
    app.add_url_rule("/a", "a", shared(lambda: "a"))
    app.add_url_rule("/b", "b", shared(lambda: "b"))
    app.add_url_rule("/c", "c", lambda: "c")
    assert codes(app, "/a", 1) + codes(app, "/b", 2) == [200, 200, 429]
    assert codes(app, "/c", 3) == [200, 200, 429], "what was denied is not charged"


def test_limits_above_one_another_are_asked_together(client: Client, key: str) -> None:
    app, limiter = app_and_limiter(client, key)
    view = limiter.limit("3/hour", cost=lambda: 1)(limiter.limit("100/hour", methods=["get"])(lambda: "x"))
    app.add_url_rule("/", "x", view, methods=["GET", "POST"])
    assert codes(app, "/", 5) == [200, 200, 200, 429, 429]
    assert client.peek("100/hour", f"x|100/3600000|{key}").remaining == 97
    assert codes(app, "/", 1, method="POST") == [429]
    assert client.peek("100/hour", f"x|100/3600000|{key}").remaining == 97


def test_a_function_that_a_view_calls(client: Client, key: str) -> None:
    app, limiter = app_and_limiter(client, key)

    @limiter.limit("1/hour")
    def expensive() -> str:
        return "done"

    @app.get("/")
    def view() -> str:
        return expensive() if flask.request.args else "cheap"

    assert codes(app, "/", 3) == [200] * 3
    assert codes(app, "/?x=1", 2) == [200, 429]


def test_conditions_and_keys_of_a_limit(client: Client, key: str) -> None:
    app, limiter = app_and_limiter(client, key)
    inside = limiter.limit("1/hour", exempt_when=lambda: "staff" in flask.request.args)
    app.add_url_rule("/a", "a", inside(lambda: "a"))
    user = limiter.limit("1/hour", key_func=lambda: flask.request.headers.get("X-User"))
    app.add_url_rule("/b", "b", user(lambda: "b"))
    assert codes(app, "/a?staff", 3) == [200] * 3
    assert codes(app, "/a", 2) == [200, 429]
    assert codes(app, "/b", 3) == [200] * 3
    assert codes(app, "/b", 2, headers={"X-User": key}) == [200, 429]
    assert codes(app, "/b", 2, headers={"X-User": "x" * 5000}) in ([200, 429], [429, 429])


def test_blueprints(client: Client, key: str) -> None:
    app, limiter = app_and_limiter(client, key, default_limits=["1/hour"])
    slow, free = flask.Blueprint("slow", "slow"), flask.Blueprint("free", "free")
    slow.add_url_rule("/slow", "view", lambda: "slow")
    free.add_url_rule("/free", "view", lambda: "free")
    limiter.limit("2/hour")(slow)
    limiter.exempt(free)
    app.register_blueprint(slow)
    app.register_blueprint(free)
    assert codes(app, "/slow", 3) == [200, 200, 429]
    assert codes(app, "/free", 3) == [200] * 3


def test_class_based_views(client: Client, key: str) -> None:
    app, limiter = app_and_limiter(client, key, default_limits=["1/hour"])

    class Search(MethodView):
        decorators = [limiter.limit("2/hour")]  # noqa: RUF012

        def get(self) -> str:
            return "x"

    @limiter.exempt
    class Free(MethodView):
        def get(self) -> str:
            return "x"

    app.add_url_rule("/search", view_func=Search.as_view("search"))
    app.add_url_rule("/free", view_func=Free.as_view("free"))
    assert codes(app, "/search", 3) == [200, 200, 429]
    assert codes(app, "/free", 3) == [200] * 3


def test_async_views(client: Client, key: str) -> None:
    app, limiter = app_and_limiter(client, key)

    @app.get("/")
    @limiter.limit("1/hour")
    async def view() -> str:
        return "async"

    assert app.test_client().get("/").text == "async"
    assert codes(app, "/", 1) == [429]


def test_the_applications_own_429_and_headers(client: Client, key: str) -> None:
    app, limiter = app_and_limiter(client, key, headers="ietf")

    @app.errorhandler(RateLimitExceeded)
    def sorry(e: RateLimitExceeded) -> Any:
        return {"left": e.decision.remaining}, 429, {"Retry-After": "7"}

    @app.get("/")
    @limiter.limit("1/hour")
    def view() -> Any:
        return flask.redirect("/elsewhere")

    browser = app.test_client()
    moved = browser.get("/")
    assert (moved.status_code, moved.headers["RateLimit-Policy"]) == (302, '"1/hour";q=1;w=3600')
    denied = browser.get("/")
    assert denied.json == {"left": 0}
    assert denied.headers.getlist("Retry-After") == ["7"]


def test_streams(client: Client, key: str) -> None:
    app, limiter = app_and_limiter(client, key)
    app.add_url_rule("/", "x", limiter.limit("1/hour")(lambda: iter(["a", "b"])))
    answer = app.test_client().get("/")
    assert (answer.text, answer.headers["X-RateLimit-Remaining"]) == ("ab", "0")


def test_requests_in_one_application_context(client: Client, key: str) -> None:
    """As tests of applications like to do: flask.g then outlives a request."""
    app, limiter = app_and_limiter(client, key)
    app.add_url_rule("/", "x", limiter.limit("2/hour")(lambda: "x"))
    with app.app_context():
        assert codes(app, "/", 3) == [200, 200, 429]


def test_init_app_address_and_enabled(client: Client) -> None:
    limiter = Limiter(key_func=get_remote_address, default_limits="1/hour", client=client, enabled=False)
    app = flask.Flask("later")
    app.add_url_rule("/", "later", lambda: "x")
    limiter.init_app(app)
    assert app.extensions["rlsidecar"] is limiter
    assert codes(app, "/", 2) == [200, 200]
    limiter.enabled = True
    client.reset("1/hour", "later|1/3600000|127.0.0.1")
    assert codes(app, "/", 2) == [200, 429]


def test_a_limit_that_cannot_be_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="at most 16 digits"):
        Limiter(default_limits=["12345678901234567 per hour"])


@pytest.mark.parametrize(("mode", "code"), [("allow", 200), ("deny", 429), ("raise", 503)])
def test_c20_without_an_agent(path: Path, mode: Any, code: int) -> None:
    app, limiter = app_and_limiter(Client(path, on_unavailable=mode), "k")
    app.add_url_rule("/", "x", limiter.limit(["api", "wide"])(lambda: "x"))
    app.register_error_handler(AgentNotRunning, lambda _: ("no agent", 503))
    answer = app.test_client().get("/")
    assert answer.status_code == code
    assert "X-RateLimit-Limit" not in answer.headers
