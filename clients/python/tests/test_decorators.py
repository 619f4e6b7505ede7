"""`client.limit` on functions and methods, plain and async, and what is refused when decorating."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real_agent import serving

import rlsidecar.asyncio
from rlsidecar import AgentNotRunning, Client, Decision, RateLimited

Either = Client | rlsidecar.asyncio.Client

POLICIES = """
policies:
  twice: {limit: 2/hour}
"""


@pytest.fixture
def client(binary: Path, tmp_path: Path) -> Iterator[Client]:
    with serving(binary, tmp_path, POLICIES) as client:
        yield client


@pytest.fixture(params=["blocking", "asyncio"])
def either(request: pytest.FixtureRequest, client: Client) -> Either:
    """Either client: both decorate both kinds of function."""
    if request.param == "blocking":
        return client
    return rlsidecar.asyncio.Client(client._pool.path, timeout=2.0, on_unavailable="raise")


def close(client: Either) -> None:
    async def closing() -> None:
        other = client if isinstance(client, rlsidecar.asyncio.Client) else client._asynchronous
        await other.close()
        other.forget_closed_loops()

    asyncio.run(closing())


def test_a_function(either: Either) -> None:
    @either.limit("twice", key=lambda user, page=1: user)
    def search(user: str, page: int = 1) -> str:
        """Finds."""
        return f"{user}:{page}"

    assert [search("a"), search("a", page=2), search("b")] == ["a:1", "a:2", "b:1"]
    with pytest.raises(RateLimited) as caught:
        search("a")
    assert caught.value.decision.limit == 2
    assert (search.__name__, search.__doc__) == ("search", "Finds.")
    assert not inspect.iscoroutinefunction(search)
    close(either)


def test_an_async_function(either: Either) -> None:
    async def key(user: str) -> str:
        await asyncio.sleep(0)
        return user

    async def sorry(decision: Decision) -> str:
        return f"later, {decision.allowed}"

    @either.limit("twice", key=key, on_denied=sorry)
    async def search(user: str) -> str:
        await asyncio.sleep(0)
        return user

    async def calls() -> list[str]:
        return [await search("a") for _ in range(3)]

    assert inspect.iscoroutinefunction(search)
    assert asyncio.run(calls()) == ["a", "a", "later, False"]
    close(either)


def test_methods(client: Client) -> None:
    class Shop:
        def __init__(self, name: str) -> None:
            self.name = name

        @client.limit("twice", key=lambda self, item: f"{self.name}:{item}", on_denied=lambda _: "no")
        def buy(self, item: str) -> str:
            return f"{self.name} sold {item}"

        @classmethod
        @client.limit("twice", key=lambda cls: cls.__name__, cost=2, on_denied=lambda _: "no")
        def open(cls) -> str:
            return cls.__name__

        @staticmethod
        @client.limit("twice", key="static", on_denied=lambda _: "no")
        def shut() -> str:
            return "shut"

    one, two = Shop("one"), Shop("two")
    assert [one.buy("tea") for _ in range(3)] == ["one sold tea", "one sold tea", "no"]
    assert two.buy("tea") == "two sold tea"
    assert [Shop.open(), one.open()] == ["Shop", "no"]
    assert [one.shut() for _ in range(3)] == ["shut", "shut", "no"]


def test_the_cost_from_the_arguments(client: Client) -> None:
    @client.limit("twice", key="k", cost=len, on_denied=lambda _: None)
    def send(recipients: list[str]) -> int:
        return len(recipients)

    assert [send(["a", "b"]), send(["c"])] == [2, None]


def test_no_key_is_not_limited(client: Client) -> None:
    @client.limit("twice", key=lambda user: user)
    def search(user: str | None) -> bool:
        return True

    assert all(search(None) for _ in range(5))


def test_c20_without_an_agent(path: Path) -> None:
    def outcomes(mode: Any) -> Any:
        client = Client(path, on_unavailable=mode)

        @client.limit("twice", key="k", on_denied=lambda decision: decision)
        def plain() -> str:
            return "ran"

        @client.limit("twice", key="k", on_denied=lambda decision: decision)
        async def coroutine() -> str:
            return "ran"

        return plain(), asyncio.run(coroutine())

    assert outcomes("allow") == ("ran", "ran")
    for denied in outcomes("deny"):
        assert (denied.allowed, denied.degraded) == (False, True)
    with pytest.raises(AgentNotRunning):
        outcomes("raise")


def test_what_cannot_be_decorated(client: Client) -> None:
    async def key() -> str:
        return "k"

    with pytest.raises(TypeError, match="below @classmethod"):
        client.limit("twice", key="k")(classmethod(lambda cls: cls))  # type: ignore[type-var]
    with pytest.raises(TypeError, match="is a plain function"):
        client.limit("twice", key=key)(test_methods)
