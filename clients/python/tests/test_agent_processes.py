"""Processes that hold permits of a real agent and die, fork, or are forked from."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgpack
import pytest
from real_agent import serving
from test_threads_and_forks import exit_status, in_child

from rlsidecar import Client

POLICIES = """
policies:
  one: {limit: 1, algorithm: concurrency, max_hold: 1h}
  brief: {limit: 1, algorithm: concurrency, max_hold: 1s}
"""
SOON = 3.0  # the second that a dead process's permits last, and what a busy machine needs
LONGER = 2.0  # than that second


@pytest.fixture
def socket_path(binary: Path, tmp_path: Path) -> Iterator[str]:
    with serving(binary, tmp_path, POLICIES) as client:
        yield str(tmp_path / "s")
        held = 1
        end = time.monotonic() + SOON
        while held and time.monotonic() < end:
            held = client.info()["stats"]["permits_held"]
        assert held == 0


@contextmanager
def other(path: str) -> Iterator[Client]:
    """A client of this process, which holds nothing."""
    with Client(path, timeout=5.0, on_unavailable="raise") as client:
        yield client


def freed_after(path: str, policy: str = "one") -> float:
    """The seconds until the permit is to be had; it is given back at once."""
    began = time.monotonic()
    with other(path) as client:
        taken = client.acquire(policy, "k", wait=10.0)
        assert taken
        waited = time.monotonic() - began
        assert client.release(taken.permit)
    return waited


def assert_taken(path: str, seconds: float = LONGER) -> None:
    with other(path) as client:
        assert not client.acquire("one", "k", wait=seconds)


@contextmanager
def holder(path: str, work: Callable[[Client, Callable[[], None]], object]) -> Iterator[Callable[[], None]]:
    """A child that works until it calls its second argument, which never returns. Gives what kills it."""
    ready, say_ready = os.pipe()

    def wait_to_be_killed() -> None:
        os.write(say_ready, b".")
        while True:
            signal.pause()

    def child() -> None:
        os.close(ready)
        with Client(path, timeout=5.0, on_unavailable="raise") as client:
            work(client, wait_to_be_killed)

    pid = in_child(child)
    os.close(say_ready)
    alive = [pid]

    def kill() -> None:
        while alive:
            os.kill(alive.pop(), signal.SIGKILL)
            assert exit_status(pid) == -signal.SIGKILL

    try:
        assert os.read(ready, 1) == b"."
        yield kill
    finally:
        os.close(ready)
        kill()


def test_killed_while_it_holds(socket_path: str) -> None:
    def work(client: Client, ready: Callable[[], None]) -> None:
        with client.hold("one", "k"):
            ready()

    with holder(socket_path, work) as kill:
        assert_taken(socket_path)
        kill()
        assert 0.9 < freed_after(socket_path) < SOON


def test_killed_with_a_permit_of_acquire(socket_path: str) -> None:
    def work(client: Client, ready: Callable[[], None]) -> None:
        assert client.acquire("one", "k").permit
        ready()

    with holder(socket_path, work) as kill:
        kill()
        assert 0.9 < freed_after(socket_path) < SOON


def test_a_fork_with_the_client_keeps_nothing_of_the_parents(socket_path: str) -> None:
    """The parent dies; its child, which inherited the client, goes on and calls."""
    lifeline, end_of_life = os.pipe()

    def work(client: Client, ready: Callable[[], None]) -> None:
        with client.hold("one", "k"):
            if os.fork() == 0:
                try:
                    os.close(end_of_life)
                    client.ping()
                    os.read(lifeline, 1)
                finally:
                    os._exit(0)
            ready()

    try:
        with holder(socket_path, work) as kill:
            kill()
            assert 0.9 < freed_after(socket_path) < SOON
    finally:
        os.close(end_of_life)
        os.close(lifeline)


BARE = """
import os, signal, socket, sys
import msgpack
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(msgpack.packb([0, 1, "acquire", ["one", "k"]]))
reply = msgpack.unpackb(s.recv(4096))
if os.fork() == 0:
    print(reply[3][7], flush=True)
    sys.stdin.read()  # the lifeline
    os._exit(0)
signal.pause()
"""


def test_an_inherited_connection_counts_for_the_parent(socket_path: str) -> None:
    """Without this client, a fork keeps the connection open: only its end tells the agent."""
    parent = subprocess.Popen(
        [sys.executable, "-c", BARE, socket_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    with parent.stdout, parent.stdin:
        assert int(parent.stdout.readline()) > 0
        parent.kill()
        parent.wait()
        assert_taken(socket_path)
        parent.stdin.close()
        assert 0.9 < freed_after(socket_path) < SOON


def test_two_connections_of_which_one_closes(socket_path: str) -> None:
    with socket.socket(socket.AF_UNIX) as kept:
        kept.connect(socket_path)
        taken = bare_acquire(socket_path)
        assert exit_status(in_child(partial(assert_taken, socket_path))) == 0
        kept.sendall(msgpack.packb([0, 2, "release", [taken]]))
        assert msgpack.unpackb(kept.recv(4096)) == [1, 2, None, True]


def bare_acquire(path: str) -> int:
    """Take the permit over a connection that closes at once."""
    with socket.socket(socket.AF_UNIX) as short:
        short.connect(path)
        short.sendall(msgpack.packb([0, 1, "acquire", ["one", "k"]]))
        reply = msgpack.unpackb(short.recv(4096))
        assert reply[2] is None
        return int(reply[3][7])


def test_back_within_the_second(socket_path: str) -> None:
    taken = bare_acquire(socket_path)
    with other(socket_path) as client:
        client.ping()
        assert exit_status(in_child(partial(assert_taken, socket_path))) == 0
        assert client.release(taken) is True


def test_not_released_within_the_longest_hold(socket_path: str) -> None:
    with other(socket_path) as client, client.hold("brief", "k") as permit:
        assert 0.9 < freed_after(socket_path, "brief") < SOON
        assert permit.release() is False


def test_release_from_another_process(socket_path: str) -> None:
    with other(socket_path) as client:
        taken = client.acquire("one", "k")

        def release() -> None:
            with other(socket_path) as child:
                assert child.release(taken.permit) is True

        assert exit_status(in_child(release)) == 0
        assert client.release(taken.permit) is False
