"""The servers that the measurements need, each on a Unix socket in a temporary folder."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

POLICIES = "policies:\n  api: {limit: 100000000/minute}\n"


@contextmanager
def started(*command: str | Path, socket: Path) -> Iterator[None]:
    """Run a server until the block ends, once its socket is there."""
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 20
        while not socket.is_socket():
            if server.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{command[0]} did not start")
            time.sleep(0.02)
        yield
    finally:
        server.terminate()
        server.wait()


@contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="rls-") as name:
        yield Path(name)


@contextmanager
def all_servers(binary: Path) -> Iterator[Path]:
    """Redis at "redis", an agent that leases from it at "agent", a bare Go echo at "echo"."""
    with folder() as here, ExitStack() as stack:
        stack.enter_context(redis(here / "redis"))
        stack.enter_context(agent(binary, here / "agent", f"unix://{here / 'redis'}"))
        echo = here / "echo"
        stack.enter_context(started(binary, "bench", "echo", "--socket", echo, socket=echo))
        yield here


def redis(socket: Path) -> AbstractContextManager[None]:
    options: list[str | Path] = ["--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no"]
    return started("redis-server", *options, socket=socket)


def agent(binary: Path, socket: Path, redis_url: str = "none") -> AbstractContextManager[None]:
    config = socket.with_suffix(".yaml")
    config.write_text(POLICIES)
    options: list[str | Path] = [
        "--config",
        config,
        "--socket",
        socket,
        "--redis",
        redis_url,
        "--log-level",
        "error",
    ]
    return started(binary, "serve", *options, socket=socket)


def given_agent() -> str:
    return os.environ.get("RLSIDECAR_AGENT", "build/rlsidecar")
