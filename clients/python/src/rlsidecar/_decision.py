"""What the caller gets back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from typing import NamedTuple

TRY_AGAIN_MS = 1000


class Source(IntEnum):
    """Where a decision came from. Not negative: the agent's numbers."""

    LEASE = 0  # permits leased by this host
    REDIS = 1  # asked for this call
    DENIAL = 2  # a denial remembered on this host
    STANDALONE = 3  # the agent runs without Redis
    FALLBACK = 4  # the agent cannot reach Redis
    LIST = 5  # exempt or blocked by a list
    UNKNOWN = -1  # a number this version does not know
    CLIENT = -2  # the agent gave no decision: on_unavailable did


class Decision(NamedTuple):
    """The answer to one call; true when the call is allowed.

    limit:     capacity in permits; 0 when it is not known
    remaining: permits left as far as this host knows, 0..limit
    reset_ms:  milliseconds until the bucket is full again
    retry_ms:  milliseconds until this same call could be allowed; 0 when it is, -1 when
               it never can be (its cost is above the capacity)
    shadow:    the policy only observes, and would have denied this call
    permit:    of a concurrency limit, what to `release`; None: there is nothing
    """

    allowed: bool
    limit: int
    remaining: int
    reset_ms: int
    retry_ms: int
    source: Source
    shadow: bool = False
    permit: int | None = None

    @property
    def reset_after(self) -> timedelta:
        """`reset_ms` as a timedelta."""
        return timedelta(milliseconds=self.reset_ms)

    @property
    def retry_after(self) -> timedelta | None:
        """`retry_ms` as a timedelta; None: never."""
        return None if self.retry_ms < 0 else timedelta(milliseconds=self.retry_ms)

    @property
    def degraded(self) -> bool:
        """Taken without Redis, or without the agent."""
        return self.source is Source.FALLBACK or self.source is Source.CLIENT

    def __bool__(self) -> bool:
        return self.allowed


@dataclass(frozen=True, slots=True)
class AllDecision:
    """The answer to `acquire_all`: true when every item is allowed.

    Otherwise nothing was consumed from any. `decisions` has one entry per item, in
    the order asked.
    """

    allowed: bool
    decisions: tuple[Decision, ...]

    def __bool__(self) -> bool:
        return self.allowed

    @property
    def degraded(self) -> bool:
        return any(decision.degraded for decision in self.decisions)


@dataclass(frozen=True, slots=True)
class ThrottleReply:
    """The answer to `throttle`. Unpacks into the five values of redis-cell's CL.THROTTLE.

    retry_after, reset_after: whole seconds; retry_after is -1 when not limited
    degraded: the agent gave no decision, on_unavailable did
    """

    limited: bool
    limit: int
    remaining: int
    retry_after: int
    reset_after: int
    degraded: bool = False

    def __iter__(self) -> Iterator[int]:
        return iter((int(self.limited), self.limit, self.remaining, self.retry_after, self.reset_after))


def unanswered(allowed: bool, cost: int, capacity: int | None) -> Decision:
    """The decision of a call that the agent gave none for.

    A cost above a capacity that is known here is never allowed.
    """
    possible = capacity is None or cost <= capacity
    allowed = allowed and possible
    retry_ms = 0 if allowed else TRY_AGAIN_MS if possible else -1
    return Decision(allowed, capacity or 0, 0, 0, retry_ms, Source.CLIENT)


def unanswered_throttle(allowed: bool, quantity: int, capacity: int) -> ThrottleReply:
    limited = not allowed or quantity > capacity
    return ThrottleReply(limited, capacity, 0, 1 if limited else -1, 0, degraded=True)
