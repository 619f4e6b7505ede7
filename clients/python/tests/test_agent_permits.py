"""Permits and algorithms, asked of a real agent."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_agent import serving
from test_threads_and_forks import exit_status, in_child

import rlsidecar
from rlsidecar import AgentTimeout, Client, Limit, RateLimited

POLICIES = """
policies:
  exports: {limit: 2, algorithm: concurrency, max_hold: 10m}
"""
ALONE = Limit.concurrency(1, max_hold=600)


@pytest.fixture
def client(binary: Path, tmp_path: Path) -> Iterator[Client]:
    with serving(binary, tmp_path, POLICIES) as client:
        yield client


def test_so_many_at_once(client: Client) -> None:
    with client.hold("exports", "u1"), client.hold("exports", "u2"):
        with client.hold("exports", "u1") as second:
            assert second.decision.remaining == 0
            with pytest.raises(RateLimited), client.hold("exports", "u1"):
                pytest.fail("a third permit of two")
        with client.hold("exports", "u1"):
            pass
    assert client.peek("exports", "u1").remaining == 2


def test_release_by_number(client: Client) -> None:
    taken = client.acquire(ALONE, "r")
    assert taken.permit is not None
    assert not client.acquire(ALONE, "r")
    assert client.release(taken.permit) is True
    assert client.release(taken.permit) is False
    assert client.acquire(ALONE, "r")


def test_a_hold_waits_for_another_to_end(client: Client) -> None:
    held, let_go = threading.Event(), threading.Event()

    def holder() -> None:
        with client.hold(ALONE, "w"):
            held.set()
            let_go.wait(10)

    thread = threading.Thread(target=holder)
    thread.start()
    assert held.wait(10)
    threading.Timer(0.1, let_go.set).start()
    with client.hold(ALONE, "w", wait=10.0):
        assert let_go.is_set()
    thread.join()


def test_the_permits_of_a_dead_process_come_back(client: Client) -> None:
    def take_and_die() -> None:
        assert client.acquire(ALONE, "d").permit
        os._exit(0)

    assert exit_status(in_child(take_and_die)) == 0
    assert client.acquire(ALONE, "d", wait=10.0)


def test_a_hold_alone_keeps_the_permit(client: Client) -> None:
    """For longer than the second after which a process without connections loses its permits."""
    with client.hold(ALONE, "k") as permit:
        client.close()

        def find_it_taken() -> None:
            end = time.monotonic() + 2
            while time.monotonic() < end:
                assert not client.acquire(ALONE, "k", wait=0.1)

        assert exit_status(in_child(find_it_taken)) == 0
        assert permit.release() is True


def test_a_child_does_not_release_its_parents_permit(client: Client) -> None:
    with client.hold(ALONE, "c") as permit:

        def leave() -> None:
            assert permit.release() is False
            assert not client.acquire(ALONE, "c")

        assert exit_status(in_child(leave)) == 0
        assert permit.release() is True


def test_a_permit_comes_back_after_the_longest_hold(client: Client) -> None:
    short = Limit.concurrency(1, max_hold=0.2)
    with client.hold(short, "m") as permit:
        began = time.monotonic()
        assert client.acquire(short, "m", wait=10.0)
        assert time.monotonic() - began > 0.15
        assert permit.release() is False


@pytest.mark.parametrize(
    "limit",
    [
        Limit.per_day(2, algorithm="token_bucket"),
        Limit.per_day(2, algorithm="leaky_bucket"),
        Limit.per_day(5, burst=2, algorithm="leaky_bucket"),
        Limit.per_day(2, algorithm="fixed_window"),
        Limit.per_day(2, algorithm="sliding_window"),
        Limit.per_day(2, algorithm="sliding_log"),
    ],
)
def test_algorithms(client: Client, limit: Limit) -> None:
    assert [bool(client.acquire(limit, "a")) for _ in range(3)] == [True, True, False]
    assert client.acquire(limit, "a").permit is None
    assert not client.acquire_all([(limit, "a"), (limit, "b")], wait=0.01)


def test_a_cost_above_what_can_be_held(client: Client) -> None:
    never = client.acquire(Limit.concurrency(2, max_hold=60), "n", cost=3)
    assert not never
    assert never.retry_after is None


def test_who_gives_up_waiting_frees_the_place(client: Client) -> None:
    """The permit goes to the one who still waits, not to the one who came first and left."""
    with client.hold(ALONE, "q"):
        connection = client._pool.connect(time.monotonic() + 2)
        with pytest.raises(AgentTimeout):
            connection.call("acquire", (ALONE.wire, "q", 1, {"wait_ms": 60_000}), time.monotonic() + 0.2)
        connection.close()
    assert client.acquire(ALONE, "q", wait=10.0)


def test_an_unknown_policy_is_no_permit(client: Client) -> None:
    with pytest.raises(rlsidecar.UnknownPolicy, match="exports"), client.hold("export", "u1"):
        pytest.fail("the block ran")
