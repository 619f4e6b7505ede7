"""What every web integration does with a request: which limits, which keys, one question.

All of a request's limits are asked at once: when one denies, none is charged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ._arguments import MAX_KEY_BYTES, Key, check_limit
from ._client import Client
from ._decision import Decision
from ._limit import Limit
from .headers import Style, Told, headers, tightest

if TYPE_CHECKING:
    from .asyncio import Client as AsyncClient

Limits = str | Limit | Iterable[str | Limit]
Asked = tuple[str | Limit, Key, int]


class Outcome(NamedTuple):
    """What was asked for one request, and the answers."""

    allowed: bool
    told: tuple[Told, ...]

    @property
    def decision(self) -> Decision:
        """The decision to tell about: of the limit that denied, or has the smallest part left."""
        return tightest([decision for _, decision in self.told])

    def headers(self, style: Style | None) -> list[tuple[str, str]]:
        return headers(self.told, style)


def as_limits(limits: Limits) -> tuple[str | Limit, ...]:
    """Checked now rather than at the first request. Raises InvalidRequest."""
    several = (limits,) if isinstance(limits, (str, Limit)) else tuple(limits)
    for limit in several:
        check_limit(limit)
    return several


def item(limit: str | Limit, key: Key, cost: int = 1, scope: str = "") -> Asked:
    """One thing to ask.

    A policy is the operator's, and the same for everybody who names it. A limit that
    the application brings along is its own: `scope` keeps it apart from an equal one
    elsewhere, and its numbers from another one here: the agent would take two limits of
    the same period for one bucket whose size changes.
    """
    wire = check_limit(limit)[0]
    if not isinstance(wire, str):
        own = f"{scope}|{'/'.join(map(str, wire))}|"
        key = own.encode() + key if isinstance(key, bytes) else own + key
    return limit, _fitting(key), cost


def _fitting(key: Key) -> Key:
    """The key, or its SHA-256 where it cannot be one: a visitor may have sent it."""
    data = key if isinstance(key, bytes) else key.encode(errors="surrogatepass")
    fits = 1 <= len(data) <= MAX_KEY_BYTES
    if fits and (isinstance(key, bytes) or not any("\ud800" <= c <= "\udfff" for c in key)):
        return key
    return "sha256:" + hashlib.sha256(data).hexdigest()


def ask(client: Client, items: Sequence[Asked]) -> Outcome:
    if len(items) == 1:
        [(limit, key, cost)] = items
        return _outcome(items, [client.acquire(limit, key, cost=cost)])
    return _outcome(items, client.acquire_all(items).decisions)


async def ask_async(client: AsyncClient, items: Sequence[Asked]) -> Outcome:
    if len(items) == 1:
        [(limit, key, cost)] = items
        return _outcome(items, [await client.acquire(limit, key, cost=cost)])
    return _outcome(items, (await client.acquire_all(items)).decisions)


def _outcome(items: Sequence[Asked], decisions: Sequence[Decision]) -> Outcome:
    told = tuple((limit, decision) for (limit, _, _), decision in zip(items, decisions, strict=True))
    return Outcome(all(decisions), told)
