"""Mode "local": the process keeps the limits that callers bring, while there is no agent."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path

import pytest

import rlsidecar.asyncio
from rlsidecar import Client, Limit, Source, _local


@pytest.fixture
def client(path: Path) -> Client:
    return Client(path, on_unavailable="local")


def test_a_limit_is_kept(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    first = client.acquire("2/hour", "k")
    assert (first.allowed, first.limit, first.remaining, first.degraded) == (True, 2, 1, True)
    assert first.reset_after == timedelta(minutes=30)
    assert not client.peek("2/hour", "k", cost=2)
    assert client.acquire("2/hour", "k").remaining == 0
    denied = client.acquire("2/hour", "k")
    assert (denied.allowed, denied.source) == (False, Source.CLIENT)
    assert denied.retry_after == timedelta(minutes=30)
    now += 1800
    assert client.acquire("2/hour", "k")
    assert client.acquire("2/hour", "other")
    assert client.acquire("2/hour", "k", cost=3).retry_after is None


def test_all_or_nothing(client: Client) -> None:
    assert client.acquire("2/hour", "k")
    assert not client.acquire_all([("2/hour", "j"), ("2/hour", "k", 2)])
    assert client.acquire("2/hour", "j", cost=2)
    assert client.acquire_all([("2/hour", "k"), ("api", "k")])
    assert not client.acquire("2/hour", "k")


def test_what_only_the_agent_knows_is_allowed(client: Client) -> None:
    assert all(client.acquire("api", "k").degraded for _ in range(5))
    with client.hold(Limit.concurrency(1, max_hold=60), "k") as permit:
        assert permit.decision.permit is None


def test_buckets_are_bounded(client: Client) -> None:
    for number in range(2 * _local.MAX_BUCKETS):
        client.acquire("2/hour", str(number))
    buckets = client._questions._local
    assert len(buckets._full_at) + len(buckets._older) <= _local.MAX_BUCKETS


def test_the_asyncio_client(path: Path) -> None:
    async def calls() -> list[bool]:
        client = rlsidecar.asyncio.Client(path, on_unavailable="local")
        return [bool(await client.acquire("1/hour", "k")) for _ in range(2)]

    assert asyncio.run(calls()) == [True, False]
