"""Makes the Python client answer the conformance suite: JSON lines in, JSON lines out.

The suite's fake agent misbehaves in every way that is known to happen; this program
calls a client as it is told and says what came. `--async` drives rlsidecar.asyncio.
Both clients have the same names, so one table of calls does for both: the blocking
one is wrapped so that its methods can be awaited.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import chain
from typing import Any

import rlsidecar
import rlsidecar.asyncio
from rlsidecar import Decision, Limit

MILLISECOND = timedelta(milliseconds=1)

KINDS: list[tuple[type[Exception], str]] = [
    (rlsidecar.AgentTimeout, "timeout"),
    (rlsidecar.AgentNotRunning, "not_running"),
    (rlsidecar.ProtocolError, "protocol"),
    (rlsidecar.Unavailable, "unavailable"),
    (rlsidecar.UnknownPolicy, "unknown_policy"),
    (rlsidecar.InvalidRequest, "invalid_request"),
    (ValueError, "invalid_request"),
    (rlsidecar.NotPermitted, "not_permitted"),
    (rlsidecar.RateLimited, "rate_limited"),
]

Request = dict[str, Any]
Answer = dict[str, Any]


class Blocking:
    """The blocking client, to be awaited."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._client = rlsidecar.Client(*args, **options)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._client, name)

        async def call(*args: Any, **options: Any) -> Any:
            return method(*args, **options)

        return call


class Driver:
    def __init__(self, asynchronous: bool) -> None:
        self._asynchronous = asynchronous
        self._clients: dict[str, Any] = {}

    async def answer(self, request: Request) -> Answer:
        began = time.perf_counter()
        try:
            answer: Answer = await getattr(self, "do_" + request["do"])(request)
        except Exception as e:
            answer = {"error": kind_of(e), "message": str(e)}
        answer.setdefault("elapsed_us", round((time.perf_counter() - began) * 1e6))
        return answer

    async def do_open(self, request: Request) -> Answer:
        for name, value in request.get("env", {}).items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        options: dict[str, Any] = {"on_unavailable": request.get("on_unavailable")}
        if request.get("timeout_ms") is not None:
            options["timeout"] = request["timeout_ms"] / 1000
        client = rlsidecar.asyncio.Client if self._asynchronous else Blocking
        self._clients[request["client"]] = client(request.get("address"), **options)
        return {"ok": True}

    async def do_acquire(self, request: Request) -> Answer:
        wait = request.get("wait_ms", 0) / 1000
        return shown(await self._one(request, "acquire", wait=wait, cost=request.get("cost", 1)))

    async def do_peek(self, request: Request) -> Answer:
        return shown(await self._one(request, "peek", cost=request.get("cost", 1)))

    async def do_refund(self, request: Request) -> Answer:
        return {"ok": await self._one(request, "refund", cost=request.get("cost", 1))}

    async def do_reset(self, request: Request) -> Answer:
        return {"ok": await self._one(request, "reset")}

    async def do_acquire_all(self, request: Request) -> Answer:
        items = [(limit_of(limit), *rest) for limit, *rest in request["items"]]
        answer = await self._clients[request["client"]].acquire_all(items, **timeout_of(request))
        decisions = [shown(decision) for decision in answer.decisions]
        return {"allowed": answer.allowed, "decisions": decisions, "degraded": answer.degraded}

    async def do_many(self, request: Request) -> Answer:
        each = self._tasks if self._asynchronous else self._threads
        keys = request["keys"]
        wrong = unavailable = 0
        for key, decision in await each(request):
            if decision.degraded:
                unavailable += 1
            elif decision.limit != 1000 + keys.index(key):
                wrong += 1
        return {"ok": True, "wrong": wrong, "unavailable": unavailable}

    async def do_fds(self, _: Request) -> Answer:
        return {"fds": len(os.listdir("/proc/self/fd"))}

    async def do_close(self, request: Request) -> Answer:
        await self._clients.pop(request["client"]).close()
        return {"ok": True}

    async def do_sleep(self, request: Request) -> Answer:
        await asyncio.sleep(request["ms"] / 1000)
        return {"ok": True}

    async def _one(self, request: Request, method: str, **options: Any) -> Any:
        call = getattr(self._clients[request["client"]], method)
        return await call(limit_of(request["limit"]), request["key"], **timeout_of(request), **options)

    async def _tasks(self, request: Request) -> list[tuple[str, Decision]]:
        lists = await asyncio.gather(*(self._series(request, n) for n in range(request["threads"])))
        return list(chain.from_iterable(lists))

    async def _threads(self, request: Request) -> list[tuple[str, Decision]]:
        with ThreadPoolExecutor(request["threads"]) as pool:
            lists = pool.map(lambda n: asyncio.run(self._series(request, n)), range(request["threads"]))
            return list(chain.from_iterable(lists))

    async def _series(self, request: Request, first: int) -> list[tuple[str, Decision]]:
        keys = request["keys"]
        got = []
        for number in range(first, first + request["calls"]):
            key = keys[number % len(keys)]
            got.append((key, await self._one({**request, "key": key}, request.get("call", "acquire"))))
        return got


def limit_of(given: Any) -> str | Limit:
    if isinstance(given, str):
        return given
    return Limit(given["count"], given["period_ms"] * MILLISECOND, given.get("burst"), given.get("algorithm"))


def timeout_of(request: Request) -> dict[str, float]:
    milliseconds = request.get("timeout_ms")
    return {} if milliseconds is None else {"timeout": milliseconds / 1000}


def shown(decision: Decision) -> Answer:
    retry_after = decision.retry_after
    return {
        "allowed": decision.allowed,
        "limit": decision.limit,
        "remaining": decision.remaining,
        "reset_after_ms": decision.reset_after // MILLISECOND,
        "retry_after_ms": -1 if retry_after is None else retry_after // MILLISECOND,
        "source": max(decision.source, -1),
        "degraded": decision.degraded,
        "shadow": decision.shadow,
        "permit": decision.permit,
    }


def kind_of(error: Exception) -> str:
    return next((name for kind, name in KINDS if isinstance(error, kind)), "other")


async def main() -> None:
    driver = Driver("--async" in sys.argv[1:])
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(await driver.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
