"""Measures what a call costs when the agent is away, in mode "allow" and with the default budget.

    python bench/away.py --agent build/rlsidecar

Prints the Markdown table of the README.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import socket
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import servers

import rlsidecar.asyncio
from rlsidecar import Client

Measured = list[tuple[float, bool]]  # seconds of a call, and whether it was degraded


class Blocking:
    """The blocking client, to be awaited."""

    def __init__(self, path: Path) -> None:
        self._client = Client(path)

    async def acquire(self, limit: str, key: str) -> Any:
        return self._client.acquire(limit, key)

    async def close(self) -> None:
        self._client.close()


async def calls(client: Any, number: int) -> Measured:
    measured = []
    for _ in range(number):
        began = time.perf_counter()
        decision = await client.acquire("1000000/second", "k")
        measured.append((time.perf_counter() - began, decision.degraded))
    return measured


async def missing(client: Any, path: Path, binary: Path) -> Measured:
    return await calls(client, 2000)


async def stale(client: Any, path: Path, binary: Path) -> Measured:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    return await calls(client, 2000)


async def hung(client: Any, path: Path, binary: Path) -> Measured:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(128)
        return await calls(client, 40)


async def paced(client: Any, going: Callable[[], bool]) -> Measured:
    measured: Measured = []
    while going():
        measured += await calls(client, 1)
        await asyncio.sleep(0.001)
    return measured


def before(end: float) -> bool:
    return time.monotonic() < end


def alive(agent: subprocess.Popen[bytes]) -> bool:
    return agent.poll() is None


async def restarting(client: Any, path: Path, binary: Path) -> Measured:
    """A call every millisecond or so, from before the first start until the last stop."""
    measured: Measured = []
    command: list[str | Path] = [binary, "serve", "--socket", path, "--redis", "none", "--log-level", "error"]
    for _ in range(3):
        with subprocess.Popen(command) as agent:
            try:
                end = time.monotonic() + 1
                measured += await paced(client, partial(before, end))
            finally:
                agent.terminate()
            measured += await paced(client, partial(alive, agent))
    return measured


CASES: dict[str, Callable[[Any, Path, Path], Awaitable[Measured]]] = {
    "the socket is missing": missing,
    "the socket is stale: nobody listens": stale,
    "the agent hangs: accepts and never answers": hung,
    "the agent is restarted, three times": restarting,
}


def shown(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs" if seconds < 0.001 else f"{seconds * 1000:.1f} ms"


def main() -> None:
    flags = argparse.ArgumentParser(description="Measures calls without an agent.")
    flags.add_argument("--agent", default=servers.given_agent(), help="the rlsidecar binary (%(default)s)")
    binary = Path(flags.parse_args().agent)
    logging.disable()
    print("| | client | calls | median | longest | degraded |\n|---|---|---|---|---|---|")
    for name, case in CASES.items():
        for kind, make in (("blocking", Blocking), ("asyncio", rlsidecar.asyncio.Client)):
            with servers.folder() as here:
                measured = asyncio.run(one(case, make, here / "s", binary))
            took = [seconds for seconds, _ in measured]
            degraded = sum(degraded for _, degraded in measured)
            print(
                f"| {name} | {kind} | {len(took)} | {shown(statistics.median(took))} "
                f"| {shown(max(took))} | {100 * degraded / len(took):.0f} % |"
            )


async def one(case: Any, make: Callable[[Path], Any], path: Path, binary: Path) -> Measured:
    client = make(path)
    try:
        measured: Measured = await case(client, path, binary)
        return measured
    finally:
        await client.close()


if __name__ == "__main__":
    main()
