"""Measures what rlsidecar.asyncio does, many calls on one connection, against a connection per call.

    python bench/multiplexed.py --agent build/rlsidecar

The pool is as many clients as there are tasks, each with its own connection: the best
that a pool of one-call connections could be. Prints JSON lines; medians of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from pathlib import Path

import servers

from rlsidecar.asyncio import Client

TASKS = 64


async def rate(clients: list[Client], calls: int) -> float:
    """Calls a second of TASKS tasks that take turns with the clients."""

    async def work(client: Client) -> None:
        for _ in range(calls):
            await client.acquire("api", "user:42")

    began = time.perf_counter()
    await asyncio.gather(*(work(clients[number % len(clients)]) for number in range(TASKS)))
    return TASKS * calls / (time.perf_counter() - began)


async def measure(socket: Path, rounds: int, calls: int) -> None:
    shared = [Client(socket, timeout=10, on_unavailable="raise")]
    pool = [Client(socket, timeout=10, on_unavailable="raise") for _ in range(TASKS)]
    found = [(await rate(shared, calls), await rate(pool, calls)) for _ in range(rounds)]
    for name, number in (("multiplexed", 0), ("pool", 1)):
        per_second = round(statistics.median(each[number] for each in found))
        print(json.dumps({"lang": "python", "what": name, "tasks": TASKS, "calls_per_s": per_second}))
    value = round(statistics.median(each[0] / each[1] for each in found), 2)
    print(json.dumps({"lang": "python", "ratio": "multiplexed / pool", "value": value}))
    for client in shared + pool:
        await client.close()


def main() -> None:
    flags = argparse.ArgumentParser(description="Measures one shared connection against a pool.")
    flags.add_argument("--agent", default=servers.given_agent(), help="the rlsidecar binary (%(default)s)")
    flags.add_argument("--rounds", type=int, default=5)
    flags.add_argument("--calls", type=int, default=200, help="of each task in a round (%(default)s)")
    given = flags.parse_args()
    with servers.folder() as here, servers.agent(Path(given.agent), here / "agent"):
        asyncio.run(measure(here / "agent", given.rounds, given.calls))


if __name__ == "__main__":
    main()
