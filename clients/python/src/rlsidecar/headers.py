"""What an HTTP response says about the limits: one place for all frameworks.

"x", the default:   X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, of the
                    limit with the smallest part left
"ietf":             RateLimit-Policy and RateLimit, of all limits, as in
                    draft-ietf-httpapi-ratelimit-headers-10
both, when denied:  Retry-After

All times are whole seconds from now, rounded up: who waits as long as told is not
told to wait again. What is not known is left out: nothing but Retry-After is said of a
decision that on_unavailable made, and no Retry-After of a call that can never be allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from ._arguments import check_limit
from ._decision import Decision, Source
from ._limit import Limit

Style = Literal["x", "ietf"]
Told = tuple[str | Limit, Decision]


def check_style(style: Style | None) -> Style | None:
    """Raises ValueError for what is no style; None: no headers but Retry-After."""
    if style is not None and style not in get_args(Style):
        raise ValueError(f"headers {style!r}: there are {', '.join(get_args(Style))}, and None")
    return style


def headers(told: Sequence[Told], style: Style | None = "x") -> list[tuple[str, str]]:
    """The names and values for a response, given each limit asked and its decision."""
    known = [(limit, decision) for limit, decision in told if _is_known(decision)]
    fields = {"x": _x_fields, "ietf": _ietf_fields}[style](known) if style and known else []
    wait = _retry_after([decision for _, decision in told if not decision])
    return fields if wait is None else [*fields, ("Retry-After", str(wait))]


def _seconds(milliseconds: int) -> int:
    """Whole seconds, rounded up."""
    return -(-milliseconds // 1000)


def tightest(decisions: Sequence[Decision]) -> Decision:
    """The one to tell about: denied, or with the smallest part left."""
    return min(decisions, key=lambda decision: (decision.allowed, decision.remaining / (decision.limit or 1)))


def _is_known(decision: Decision) -> bool:
    return decision.limit > 0 and decision.source is not Source.CLIENT


def _x_fields(told: Sequence[Told]) -> list[tuple[str, str]]:
    decision = tightest([decision for _, decision in told])
    return [
        ("X-RateLimit-Limit", str(decision.limit)),
        ("X-RateLimit-Remaining", str(decision.remaining)),
        ("X-RateLimit-Reset", str(_seconds(decision.reset_ms))),
    ]


def _ietf_fields(told: Sequence[Told]) -> list[tuple[str, str]]:
    policies = [f"{_quoted(limit)};q={decision.limit}{_window(limit)}" for limit, decision in told]
    left = [
        f"{_quoted(limit)};r={decision.remaining};t={_seconds(decision.reset_ms)}" for limit, decision in told
    ]
    return [("RateLimit-Policy", ", ".join(policies)), ("RateLimit", ", ".join(left))]


def _retry_after(denied: Sequence[Decision]) -> int | None:
    waits = [decision.retry_ms for decision in denied]
    if not waits or min(waits) < 0:
        return None
    return max(1, _seconds(max(waits)))


def _quoted(limit: str | Limit) -> str:
    """A structured-field string: printable ASCII, with quotes and backslashes escaped."""
    name = limit if isinstance(limit, str) else f"{limit.count}/{limit.wire[1]}ms"
    printable = "".join(c if " " <= c <= "~" else "?" for c in name)
    return '"' + printable.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _window(limit: str | Limit) -> str:
    """The period of a limit that the caller brought; a policy's is known to the agent only."""
    wire = check_limit(limit)[0]
    period = 0 if isinstance(wire, str) else int(wire[1])
    return f";w={-(-period // 1000)}" if period >= 1000 else ""
