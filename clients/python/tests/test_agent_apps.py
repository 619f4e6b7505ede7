"""Applications, as a real agent tells them apart."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from real_agent import serving

from rlsidecar import Client, InvalidRequest, NotPermitted

NOBODY = 3_999_999_999


def policies(uid: int, trust: bool = False) -> str:
    return f"""
trust_client_app: {str(trust).lower()}
apps:
  shop: {{uids: [{uid}]}}
  blog: {{gids: [{NOBODY}]}}
policies:
  sales: {{limit: 100/hour, apps: [shop]}}
  posts: {{limit: 100/hour, apps: [blog]}}
"""


def test_the_user_decides(binary: Path, tmp_path: Path) -> None:
    with serving(binary, tmp_path, policies(os.getuid())) as client:
        assert client.acquire("sales", "k")
        with pytest.raises(NotPermitted, match=r'only for the apps blog: this caller is "shop"'):
            client.acquire("posts", "k")


def test_a_caller_of_no_application(binary: Path, tmp_path: Path) -> None:
    with (
        serving(binary, tmp_path, policies(NOBODY)) as client,
        pytest.raises(NotPermitted, match="of none of the agent's apps"),
    ):
        client.acquire("sales", "k")


def test_a_claim_counts_where_the_agent_trusts_it(binary: Path, tmp_path: Path) -> None:
    with serving(binary, tmp_path, policies(os.getuid(), trust=True)) as plain:
        address = str(tmp_path / "s")
        with Client(address, timeout=2.0, on_unavailable="raise", app="blog") as blog:
            assert blog.acquire("posts", "k")
            assert blog.acquire_all([("posts", "k")])
            with pytest.raises(NotPermitted, match=r'this caller is "blog"'):
                blog.acquire("sales", "k")
        assert plain.acquire("sales", "k")
        with (
            Client(address, timeout=2.0, on_unavailable="raise", app="store") as unknown,
            pytest.raises(InvalidRequest, match='unknown app: "store"'),
        ):
            unknown.acquire("sales", "k")


def test_a_claim_counts_nothing_where_it_does_not(binary: Path, tmp_path: Path) -> None:
    with serving(binary, tmp_path, policies(os.getuid())):
        address = str(tmp_path / "s")
        with Client(address, timeout=2.0, on_unavailable="raise", app="blog") as blog:
            assert blog.acquire("sales", "k")
            with pytest.raises(NotPermitted):
                blog.acquire("posts", "k")
