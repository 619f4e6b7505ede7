"""What the real servers of test_servers.py serve: each request asks with its own key, and shows the answer.

The limit asked for is made from the key, so that an answer to another's question shows:
key "n17" brings a limit of 1017 per hour along.
"""

from __future__ import annotations

import os
from typing import Any

import flask
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse

import rlsidecar.asyncio
from rlsidecar import Client, Limit
from rlsidecar.asgi import RateLimitMiddleware
from rlsidecar.flask import Limiter

limits = Client(timeout=10, on_unavailable="raise")
async_limits = rlsidecar.asyncio.Client(timeout=10, on_unavailable="raise")

wsgi = flask.Flask("served")
limiter = Limiter(wsgi, key_func=lambda: flask.request.headers.get("X-User"), client=limits)

if os.environ.get("SERVED_USES_BEFORE_FORK"):
    limits.ping()


def own_limit(key: str) -> Limit:
    return Limit.per_hour(1000 + int(key[1:]))


@wsgi.get("/ask/<key>")
def ask(key: str) -> str:
    return f"{limits.acquire(own_limit(key), key).limit} {os.getpid()}"


@wsgi.get("/limited")
@limiter.limit("2/hour")
def limited() -> str:
    return "in"


@wsgi.get("/impatient/<key>")
def impatient(key: str) -> str:
    """Break off a call after no time at all, as gevent's Timeout does to whatever runs."""
    import gevent

    broken = 0
    for n in range(20):
        try:
            with gevent.Timeout(n % 5 * 0.00005):
                limits.acquire(own_limit("n5"), "n5", wait=1)
        except gevent.Timeout:
            broken += 1
    return f"{limits.acquire(own_limit(key), key).limit} {broken}"


asgi = FastAPI()
asgi.add_middleware(RateLimitMiddleware, limits="wide", key=lambda scope: scope["path"], client=async_limits)


@asgi.get("/ask/{key}")
async def ask_async(key: str) -> Any:
    decision = await async_limits.acquire(own_limit(key), key)
    return PlainTextResponse(f"{decision.limit} {os.getpid()}")
