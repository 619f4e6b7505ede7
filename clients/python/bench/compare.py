"""Measures a decision by this client against a raw exchange of the same bytes, and against redis-py.

    python bench/compare.py --agent build/rlsidecar

"ping" sends the very request over a plain socket to a bare Go echo; nothing asked over a
socket can be faster by much. "redis" is what one would do without an agent: a token
bucket in Lua, called by redis-py with EVALSHA over Redis's Unix socket. For latency, both
ends share one processor: what is measured otherwise is how fast the machine wakes one.
The contestants take turns within a round; ratios are taken within a round, and all
figures are medians of the rounds. Prints JSON lines.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import redis
import servers

import rlsidecar.asyncio
from rlsidecar import Client

REQUEST = msgpack.packb([0, 1_234_567_890, "acquire", ["api", "user:42", 1]])
BUCKET = """
local now = redis.call('TIME')
now = now[1] + now[2] / 1000000
local state = redis.call('HMGET', KEYS[1], 'level', 'time')
local rate, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local level = tonumber(state[1]) or burst
level = math.min(burst, level + (now - (tonumber(state[2]) or now)) * rate)
local allowed = level >= cost
if allowed then level = level - cost end
redis.call('HSET', KEYS[1], 'level', level, 'time', now)
redis.call('PEXPIRE', KEYS[1], 10000)
return {allowed and 1 or 0, math.floor(level)}
"""

Call = Callable[[], Any]


def by_agent(here: Path) -> Call:
    client = Client(here / "agent", timeout=5, on_unavailable="raise")
    return lambda: client.acquire("api", "user:42")


def by_ping(here: Path) -> Call:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(here / "echo"))

    def exchange() -> bytes:
        sock.sendall(REQUEST)
        return sock.recv(1024)

    return exchange


def by_redis(here: Path) -> Call:
    connection = redis.Redis(unix_socket_path=str(here / "redis"))
    bucket = connection.register_script(BUCKET)
    bucket(keys=["user:42"], args=[1e9, 1e9, 1])
    sha = bucket.sha
    return lambda: connection.evalsha(sha, 1, "user:42", 1e9, 1e9, 1)


CONTESTANTS: dict[str, Callable[[Path], Call]] = {"agent": by_agent, "ping": by_ping, "redis": by_redis}


def latencies(call: Call, calls: int) -> list[float]:
    """Microseconds of each call, sorted, after a tenth to warm up."""
    clock = time.perf_counter_ns
    took = []
    for _ in range(calls):
        began = clock()
        call()
        took.append((clock() - began) / 1000)
    return sorted(took[calls // 10 :])


def latencies_asyncio(here: Path, calls: int) -> list[float]:
    async def measure() -> list[float]:
        clock = time.perf_counter_ns
        took = []
        async with rlsidecar.asyncio.Client(here / "agent", timeout=5, on_unavailable="raise") as client:
            for _ in range(calls):
                began = clock()
                await client.acquire("api", "user:42")
                took.append((clock() - began) / 1000)
        return sorted(took[calls // 10 :])

    return asyncio.run(measure())


def latency_round(here: Path, turn: int, calls: int) -> dict[str, tuple[float, float]]:
    """p50 and p99 of each contestant; who begins changes from round to round."""
    names = [*CONTESTANTS, "agent_asyncio"]
    found = {}
    for name in names[turn % len(names) :] + names[: turn % len(names)]:
        if name == "agent_asyncio":
            took = latencies_asyncio(here, calls)
        else:
            took = latencies(CONTESTANTS[name](here), calls)
        found[name] = (took[len(took) // 2], took[len(took) * 99 // 100])
    return found


def count_calls(name: str, here: Path, seconds: float, start: Any, counts: Any) -> None:
    call = CONTESTANTS[name](here)
    call()
    start.wait()
    end = time.monotonic() + seconds
    counted = 0
    while time.monotonic() < end:
        for _ in range(20):
            call()
        counted += 20
    counts.put(counted)


def throughput(name: str, here: Path, processes: int, seconds: float) -> float:
    """Calls a second of so many processes together."""
    fork = multiprocessing.get_context("fork")
    start, counts = fork.Barrier(processes), fork.Queue()
    workers = [
        fork.Process(target=count_calls, args=(name, here, seconds, start, counts)) for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    total: int = sum(counts.get() for _ in workers)
    for worker in workers:
        worker.join()
    return total / seconds


def say(**fields: Any) -> None:
    print(json.dumps({"lang": "python", **fields}), flush=True)


def ratio(rounds: list[dict[str, float]], one: str, other: str) -> float:
    return round(statistics.median(each[one] / each[other] for each in rounds), 2)


def measure_latency(here: Path, rounds: int, calls: int) -> None:
    everybody = os.sched_getaffinity(0)
    processes = [0, *children()]
    for pid in processes:
        pin(pid, {min(everybody)})
    found = [latency_round(here, turn, calls) for turn in range(rounds)]
    for pid in processes:
        pin(pid, everybody)
    for name in found[0]:
        p50 = statistics.median(each[name][0] for each in found)
        p99 = statistics.median(each[name][1] for each in found)
        say(what=name, p50_us=round(p50, 1), p99_us=round(p99, 1))
    p50s = [{name: each[name][0] for name in each} for each in found]
    say(ratio="p50 agent / ping", value=ratio(p50s, "agent", "ping"))
    say(ratio="p50 redis / agent", value=ratio(p50s, "redis", "agent"))


def measure_throughput(here: Path, rounds: int, processes: int, seconds: float) -> None:
    found = []
    for turn in range(rounds):
        names = ["agent", "ping", "redis"][:: 1 if turn % 2 else -1]
        found.append({name: throughput(name, here, processes, seconds) for name in names})
    for name in ("agent", "ping", "redis"):
        per_second = statistics.median(each[name] for each in found)
        say(what=name, processes=processes, per_second=round(per_second))
    say(ratio=f"throughput agent / redis, {processes} processes", value=ratio(found, "agent", "redis"))


def children() -> list[int]:
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(pid) for pid in listed.split()]


def pin(pid: int, cpus: set[int]) -> None:
    """All threads of a process."""
    for task in os.listdir(f"/proc/{pid or os.getpid()}/task"):
        os.sched_setaffinity(int(task), cpus)


def main() -> None:
    flags = argparse.ArgumentParser(description="Measures a decision against a raw exchange and redis-py.")
    flags.add_argument("--agent", default=servers.given_agent(), help="the rlsidecar binary (%(default)s)")
    flags.add_argument("--rounds", type=int, default=5, help="%(default)s; at least 3 for a median")
    flags.add_argument("--calls", type=int, default=5000, help="per contestant and round (%(default)s)")
    flags.add_argument("--processes", type=int, default=8, help="for throughput (%(default)s)")
    flags.add_argument("--seconds", type=float, default=1.0, help="of throughput per round (%(default)s)")
    given = flags.parse_args()
    if given.rounds < 3:
        flags.error(f"--rounds {given.rounds}: a median needs at least 3")
    with servers.all_servers(Path(given.agent)) as here:
        measure_latency(here, given.rounds, given.calls)
        measure_throughput(here, given.rounds, given.processes, given.seconds)


if __name__ == "__main__":
    main()
