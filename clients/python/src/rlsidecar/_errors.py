"""What can go wrong, sorted by whose fault it is.

`Unavailable` and its subclasses mean that no decision was had; they pass
through `on_unavailable` and reach the caller in mode "raise" only. The others
are mistakes of the calling code or of its policies and are always raised.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._decision import Decision


class RlsidecarError(Exception):
    """Every error of this package."""


class RateLimited(RlsidecarError):
    """A denial, raised by `hold`, and for code that prefers an exception. `acquire` never raises it."""

    def __init__(self, decision: Decision) -> None:
        super().__init__(decision)
        self.decision = decision

    def __str__(self) -> str:
        wait = self.decision.retry_after
        return "rate limited: " + ("can never be allowed" if wait is None else f"retry after {wait}")


class Unavailable(RlsidecarError):
    """No decision was had: the agent could not be asked, or could not decide."""


class AgentTimeout(Unavailable):
    """The agent did not answer within the call's budget. The call may have counted."""


class AgentNotRunning(Unavailable):
    """Nobody listens on the agent's socket, or this process may not connect to it."""


class ProtocolError(Unavailable):
    """Client and agent do not understand each other; the connection was closed."""


class UnknownPolicy(RlsidecarError):
    """The agent has no policy of this name."""


class InvalidRequest(RlsidecarError, ValueError):
    """An argument is out of range; the message names it and what is allowed."""


class NotPermitted(RlsidecarError):
    """The operator does not let this application use this policy or method."""
