"""The client and a real agent: scripts/test builds one and names it in RLSIDECAR_AGENT."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from real_agent import serving

import rlsidecar
from rlsidecar import Client, Limit, Source

POLICIES = """
policies:
  login: {limit: 5/minute}
  upload: {limit: 100/second}
  watch: {limit: 1/hour, mode: shadow}
"""


@pytest.fixture
def client(binary: Path, tmp_path: Path) -> Iterator[Client]:
    with serving(binary, tmp_path, POLICIES) as client:
        yield client


def test_a_policy_allows_and_denies(client: Client) -> None:
    assert [client.acquire("login", "u").remaining for _ in range(5)] == [4, 3, 2, 1, 0]
    denied = client.acquire("login", "u")
    assert not denied
    assert denied.source is Source.STANDALONE
    assert denied.retry_after is not None
    assert timedelta(seconds=11) < denied.retry_after <= timedelta(seconds=12)


def test_a_cost_above_the_capacity_is_never_allowed(client: Client) -> None:
    never = client.acquire(Limit.per_second(100), "k", cost=200)
    assert not never.allowed
    assert never.retry_after is None


def test_refund_reset_and_peek(client: Client) -> None:
    client.acquire("upload", "k", cost=100)
    assert client.refund("upload", "k", cost=40)
    assert client.peek("upload", "k").remaining >= 40
    assert client.reset("upload", "k")
    assert client.peek("upload", "k").remaining == 100


def test_all_or_nothing(client: Client) -> None:
    client.acquire("login", "b", cost=5)
    assert not client.acquire_all([("login", "a"), ("login", "b")]).allowed
    assert client.peek("login", "a").remaining == 5


def test_a_wait_is_held_until_the_permit_comes(client: Client) -> None:
    limit = Limit(1, period=0.2)
    assert client.acquire(limit, "w")
    began = time.monotonic()
    assert client.acquire(limit, "w", wait=1.0)
    assert time.monotonic() - began > 0.15


def test_shadow_throttle_info_and_errors(client: Client) -> None:
    client.acquire("watch", "k")
    watched = client.acquire("watch", "k")
    assert watched.allowed
    assert watched.shadow
    assert [client.throttle("t", 1, 1, 60).limited for _ in range(3)] == [False, False, True]
    assert client.info()["mode"] == "standalone"
    with pytest.raises(rlsidecar.UnknownPolicy, match="login"):
        client.acquire("logim", "k")
