"""Fixtures: a socket path, a fake agent with the script a test gives, a real one, a clean environment."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from fake_agent import ALLOWING, FakeAgent, Script
from real_agent import built, serving

StartAgent = Callable[..., FakeAgent]


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ADDRESS", "TIMEOUT_MS", "ON_UNAVAILABLE", "DISABLE", "APP"):
        monkeypatch.delenv(f"RLSIDECAR_{name}", raising=False)


@pytest.fixture
def path() -> Iterator[Path]:
    """A path short enough for a socket; pytest's own temporary directories are not."""
    with tempfile.TemporaryDirectory(prefix="rls-") as directory:
        yield Path(directory) / "agent.sock"


@pytest.fixture
def agent(path: Path) -> Iterator[StartAgent]:
    with ExitStack() as stack:

        def start(script: Script = ALLOWING) -> FakeAgent:
            return stack.enter_context(FakeAgent(path, script))

        yield start


@pytest.fixture(scope="session")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("agent"))


@pytest.fixture(scope="session")
def address(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The socket of one agent for all tests of web frameworks, who keep apart by their keys."""
    directory = tmp_path_factory.mktemp("web")
    policies = "policies:\n  api: {limit: 3/hour}\n  wide: {limit: 1000/hour}\n"
    with serving(binary, directory, policies):
        yield str(directory / "s")


@pytest.fixture
def key() -> str:
    """A key that no other test uses."""
    return secrets.token_hex(8)
