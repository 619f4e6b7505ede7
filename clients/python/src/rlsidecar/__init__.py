"""Ask the rlsidecar agent on this host whether a call may go through.

from rlsidecar import Client

limits = Client()
if not limits.acquire("login", key=username):
    ...

Nothing is opened by importing this package or by building a `Client`: the
first call connects.
"""

from ._client import Client
from ._decision import AllDecision, Decision, Source, ThrottleReply
from ._errors import (
    AgentNotRunning,
    AgentTimeout,
    InvalidRequest,
    NotPermitted,
    ProtocolError,
    RateLimited,
    RlsidecarError,
    Unavailable,
    UnknownPolicy,
)
from ._limit import Algorithm, Limit
from ._permit import Permit

__version__ = "0.1.0"

__all__ = [
    "AgentNotRunning",
    "AgentTimeout",
    "Algorithm",
    "AllDecision",
    "Client",
    "Decision",
    "InvalidRequest",
    "Limit",
    "NotPermitted",
    "Permit",
    "ProtocolError",
    "RateLimited",
    "RlsidecarError",
    "Source",
    "ThrottleReply",
    "Unavailable",
    "UnknownPolicy",
]
