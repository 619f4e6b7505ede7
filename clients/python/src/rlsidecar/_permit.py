"""What `Client.hold` takes: a permit, and the connection that keeps it."""

from __future__ import annotations

import os
from collections.abc import Callable

from ._connection import Connection
from ._decision import Decision


class Permit:
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

    def __init__(
        self, decision: Decision, kept: list[Connection], give_back: Callable[[Connection], bool]
    ) -> None:
        self.decision = decision
        self._kept = kept  # one connection until the release; list.pop hands it to one thread only
        self._give_back = give_back
        self._pid = os.getpid()

    def release(self) -> bool:
        """Give the permit back before the block ends.

        True: the agent took it. False: there is none any more, or the agent did not
        answer, and will take it back by itself. Raises nothing.
        """
        if self._pid != os.getpid():
            return False
        try:
            connection = self._kept.pop()
        except IndexError:
            return False
        return self._give_back(connection)
