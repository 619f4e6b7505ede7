"""What `hold` takes: a permit, and the connection that keeps it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ._decision import Decision


class _Held:
    """A permit of a concurrency limit while the block of `with client.hold(...)` runs.

    decision: what let the block run. Its `permit` is None when it runs without one:
              the key is exempt, or nobody decided and on_unavailable is "allow"
              (then `decision.degraded` is true).

    The agent takes permits back by itself: from a process without a connection
    after a second, and from anybody after the limit's longest hold. So a connection
    is set aside for the hold, that no call uses until the release. Should it break,
    the permit may be lost; the release says so.

    After a fork the permit is still the parent's alone: in the child, `release` does
    nothing, and neither does leaving the block.
    """

    __slots__ = ("_give_back", "_kept", "_pid", "decision")

    def __init__(self, decision: Decision, kept: list[Any], give_back: Callable[[Any], Any]) -> None:
        self.decision = decision
        self._kept = kept  # one connection until the release; list.pop hands it to one thread only
        self._give_back = give_back
        self._pid = os.getpid()

    def _claim(self) -> Any:
        """The connection to release over, for the first who asks."""
        if self._pid != os.getpid():
            return None
        try:
            return self._kept.pop()
        except IndexError:
            return None


class Permit(_Held):
    __doc__ = _Held.__doc__
    __slots__ = ()

    def release(self) -> bool:
        """Give the permit back before the block ends.

        True: the agent took it. False: there is none any more, or the agent did not
        answer, and will take it back by itself. Raises nothing.
        """
        connection = self._claim()
        return connection is not None and bool(self._give_back(connection))


class AsyncPermit(_Held):
    __doc__ = _Held.__doc__
    __slots__ = ()

    async def release(self) -> bool:
        """As `Permit.release`. May be cancelled: the request is sent before it waits."""
        connection = self._claim()
        return connection is not None and bool(await self._give_back(connection))
