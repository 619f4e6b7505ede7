"""Mode "local": limits that the caller brings along, kept by this process while there is no agent."""

from __future__ import annotations

import time

from ._arguments import Key, milliseconds
from ._decision import Decision, Source, unanswered
from ._limit import Inline

MAX_BUCKETS = 10_000


class LocalBuckets:
    """Token buckets, whatever the limit's algorithm; of a concurrency limit nothing is kept.

    Each process counts for itself, so that n of them may let through n times the limit.
    Who asks for more than MAX_BUCKETS keys in turn is not limited. There is no lock:
    threads that ask for one key in the same instant may take one permit too many.
    """

    def __init__(self) -> None:
        self._full_at: dict[tuple[Inline, Key], float] = {}  # when each bucket is full again
        self._older: dict[tuple[Inline, Key], float] = {}

    def ask(self, wire: Inline, key: Key, cost: int, capacity: int, take: bool) -> Decision:
        if wire[-1] == "concurrency" or cost > capacity:
            return unanswered(True, cost, capacity)
        now = time.monotonic()
        each = int(wire[1]) / 1000 / int(wire[0])
        name = (wire, key)
        missing = max(0.0, self._full_at.get(name, self._older.get(name, 0.0)) - now)
        late = missing + cost * each - capacity * each
        allowed = late <= 1e-9
        if allowed and take:
            missing += cost * each
            self._keep(name, now + missing)
        left = max(0, int(capacity - missing / each + 1e-6))
        retry_ms = 0 if allowed else milliseconds(late)
        return Decision(allowed, capacity, left, milliseconds(missing), retry_ms, Source.CLIENT)

    def _keep(self, name: tuple[Inline, Key], full_at: float) -> None:
        """Forget the half of the buckets that was used least lately, when there are too many."""
        if len(self._full_at) >= MAX_BUCKETS // 2:
            self._older, self._full_at = self._full_at, {}
        self._full_at[name] = full_at
