"""A real agent for the tests that need one: built once, run as long as a test wants it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import rlsidecar
from rlsidecar import Client

ROOT = Path(__file__).parents[3]


def built(directory: Path) -> Path:
    """The agent that RLSIDECAR_AGENT names, as scripts/test has it, or one built here."""
    named = os.environ.get("RLSIDECAR_AGENT")
    if named:
        return Path(named)
    binary = directory / "rlsidecar"
    subprocess.run(["go", "build", "-o", binary, "./cmd/rlsidecar"], cwd=ROOT, check=True)
    return binary


@contextmanager
def serving(binary: Path, directory: Path, policies: str) -> Iterator[Client]:
    """An agent with these policies, and a client of it."""
    config, socket = directory / "c.yaml", directory / "s"
    config.write_text(policies)
    agent = subprocess.Popen([binary, "serve", "--config", config, "--socket", socket, "--log-level", "warn"])
    try:
        with Client(str(socket), timeout=2.0, on_unavailable="raise") as client:
            _await(client, agent)
            yield client
    finally:
        agent.terminate()
        assert agent.wait(10) == 0


def _await(client: Client, agent: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 10
    while True:
        try:
            client.ping()
            return
        except rlsidecar.Unavailable:
            if time.monotonic() > end or agent.poll() is not None:
                raise
            time.sleep(0.01)
