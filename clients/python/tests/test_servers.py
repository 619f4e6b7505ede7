"""Real servers under a bounded load: each request gets the answer to its own question."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

THREADS = 16
REQUESTS = 20

GUNICORN = {
    "prefork, preloaded after a use": ["-w", "2", "--preload"],
    "threads": ["-w", "2", "-k", "gthread", "--threads", "8"],
    "gevent": ["-w", "2", "-k", "gevent"],
    "gevent, preloaded": ["-w", "2", "-k", "gevent", "--preload"],
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def serving(command: list[str], address: str, **environment: str) -> Iterator[int]:
    """Run a server that is told its port; give the port."""
    port = free_port()
    here = Path(__file__).parent
    environ = {
        **os.environ,
        "RLSIDECAR_ADDRESS": address,
        "PYTHONPATH": f"{here}{os.pathsep}{here.parent / 'src'}",
        **environment,
    }
    server = subprocess.Popen(
        [sys.executable, "-m", *(word.replace("PORT", str(port)) for word in command)], env=environ
    )
    try:
        await_port(port, server)
        yield port
    finally:
        server.terminate()
        server.wait(20)


def await_port(port: int, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 30
    while True:
        assert server.poll() is None, "the server ended"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert time.monotonic() < end, "the server did not start"
            time.sleep(0.05)


def get(port: int, path: str, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def assert_no_crosstalk(port: int) -> None:
    """Many at once ask, each with its own key; at least two processes answer."""

    def visit(number: int) -> str:
        key = f"n{number % 500}"
        code, text = get(port, f"/ask/{key}")
        assert code == 200, text
        limit, pid = text.split()
        assert int(limit) == 1000 + number % 500
        return pid

    with ThreadPoolExecutor(THREADS) as pool:
        pids = set(pool.map(visit, range(THREADS * REQUESTS)))
    assert len(pids) == 2


@pytest.mark.parametrize("how", GUNICORN)
def test_c15_gunicorn(address: str, key: str, how: str) -> None:
    before = {"SERVED_USES_BEFORE_FORK": "1"} if "preloaded" in how else {}
    command = ["gunicorn", "--log-level", "error", "-b", "127.0.0.1:PORT", *GUNICORN[how], "served:wsgi"]
    with serving(command, address, **before) as port:
        assert_no_crosstalk(port)
        answers = [get(port, "/limited", **{"X-User": key})[0] for _ in range(4)]
        assert answers == [200, 200, 429, 429], "two workers, one limit"


def test_c16_gevent_timeouts(address: str) -> None:
    """Calls that are broken off anywhere leave no reply behind for the next."""
    command = ["gunicorn", "--log-level", "error", "-b", "127.0.0.1:PORT", "-w", "1", "-k", "gevent"]
    with serving([*command, "served:wsgi"], address) as port, ThreadPoolExecutor(THREADS) as pool:
        answers = list(pool.map(lambda n: get(port, f"/impatient/n{n}"), range(40)))
    for number, (code, text) in enumerate(answers):
        assert (code, text.split()[0]) == (200, str(1000 + number)), text
    assert sum(int(text.split()[1]) for _, text in answers) > 0, "nothing was broken off"


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_c16_uvicorn(address: str, loop: str) -> None:
    command = ["uvicorn", "--log-level", "error", "--port", "PORT", "--workers", "2", "--loop", loop]
    with serving([*command, "served:asgi"], address) as port:
        assert_no_crosstalk(port)
