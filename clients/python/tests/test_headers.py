"""C-28: what responses say."""

from __future__ import annotations

import pytest

from rlsidecar import Decision, Limit, Source
from rlsidecar._decision import unanswered
from rlsidecar._gate import as_limits, item
from rlsidecar.headers import Told, check_style, headers


def decision(
    allowed: bool = True, limit: int = 100, remaining: int = 99, reset: float = 1.0, retry: float | None = 0.0
) -> Decision:
    retry_ms = -1 if retry is None else round(retry * 1000)
    return Decision(allowed, limit, remaining, round(reset * 1000), retry_ms, Source.LEASE)


def test_allowed() -> None:
    assert headers([("api", decision(reset=29.001))]) == [
        ("X-RateLimit-Limit", "100"),
        ("X-RateLimit-Remaining", "99"),
        ("X-RateLimit-Reset", "30"),
    ]


@pytest.mark.parametrize(
    ("retry", "said"), [(0.001, "1"), (1.0, "1"), (1.001, "2"), (59.5, "60"), (0.0, "1")]
)
def test_denied_is_rounded_up(retry: float, said: str) -> None:
    assert headers([("api", decision(False, 100, 0, 60, retry))])[-1] == ("Retry-After", said)


def test_never_has_no_retry_after() -> None:
    assert "Retry-After" not in dict(headers([("api", decision(False, retry=None))]))


def test_nothing_is_said_of_what_is_not_known() -> None:
    assert headers([("api", unanswered(True, 1, None))]) == []
    assert headers([("api", unanswered(False, 1, None))]) == [("Retry-After", "1")]


def test_of_several_the_tightest_counts_and_the_longest_wait() -> None:
    told: list[Told] = [
        ("api", decision(True, 1000, 900)),
        ("login", decision(False, 5, 0, 60, 12.5)),
        ("burst", decision(False, 10, 0, 2, 0.5)),
    ]
    fields = dict(headers(told))
    assert (fields["X-RateLimit-Limit"], fields["Retry-After"]) == ("5", "13")
    assert dict(headers([told[0], ("small", decision(True, 10, 1))]))["X-RateLimit-Limit"] == "10"


def test_ietf() -> None:
    told: list[Told] = [
        ("api", decision(reset=29.5)),
        ("100/minute", decision(remaining=98, reset=0)),
        (Limit(5, 0.25), decision(limit=5, remaining=0)),
        (Limit(5, 1.5), decision(limit=5, remaining=5)),
    ]
    assert headers(told, "ietf") == [
        ("RateLimit-Policy", '"api";q=100, "100/minute";q=100;w=60, "5/250ms";q=5, "5/1500ms";q=5;w=2'),
        (
            "RateLimit",
            '"api";r=99;t=30, "100/minute";r=98;t=0, "5/250ms";r=0;t=1, "5/1500ms";r=5;t=1',
        ),
    ]


def test_ietf_names_are_quoted() -> None:
    assert headers([('a"\\é\r\n', decision())], "ietf")[0] == ("RateLimit-Policy", '"a\\"\\\\???";q=100')


def test_no_style_leaves_retry_after() -> None:
    assert headers([("api", decision(False, retry=3))], None) == [("Retry-After", "3")]
    with pytest.raises(ValueError, match="headers 'y': there are x, ietf, and None"):
        check_style("y")  # type: ignore[arg-type]


def test_keys_of_visitors_are_made_to_fit() -> None:
    assert item("api", "k", scope="s") == ("api", "k", 1)
    assert item("10/minute", "k", scope="s") == ("10/minute", "s|10/60000|k", 1)
    assert item("10/minute", b"k", 2, "s") == ("10/minute", b"s|10/60000|k", 2)
    digests = {item("api", key)[1] for key in ("", "x" * 1025, "é" * 513, "\ud800", b"", b"x" * 2000)}
    assert all(len(digest) == 71 for digest in digests)
    assert item("api", "x" * 1024)[1] == "x" * 1024


def test_limits_are_checked_when_given() -> None:
    assert as_limits("api") == ("api",)
    with pytest.raises(ValueError, match="number"):
        as_limits(["api", "99999999999999999999/minute"])
