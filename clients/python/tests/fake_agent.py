"""A scripted agent on a real Unix socket.

A script is a function that is called, in a thread of its own, with every
connection: it reads requests and writes whatever bytes the case calls for.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import msgpack

ALLOWED = [True, 100, 99, 1000, 0, 0, 0]
DENIED = [False, 100, 0, 1000, 250, 2, 0]


class Gone(Exception):
    """The client closed the connection."""


class Peer:
    """One accepted connection."""

    def __init__(self, agent: FakeAgent, sock: socket.socket, number: int) -> None:
        self.agent = agent
        self.number = number
        self.sock = sock
        self.raw = b""
        self._unpacker = msgpack.Unpacker()

    def read(self) -> tuple[int, str, list[Any]]:
        """The next request: msgid, method, params."""
        while True:
            try:
                kind, msgid, method, params = self._unpacker.unpack()
            except msgpack.OutOfData:
                self._fill()
                continue
            assert kind == 0, f"not a request: {kind}"
            self.agent.requests.append((self.number, msgid, method, params))
            return msgid, method, params

    def _fill(self) -> None:
        data = self.sock.recv(65536)
        if not data:
            raise Gone
        self.raw += data
        self._unpacker.feed(data)

    def pending(self) -> bool:
        """Whether bytes of another request are there."""
        return bool(select.select([self.sock], [], [], 0)[0])

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def reply(self, msgid: int, result: Any, error: Any = None) -> None:
        self.send(response(msgid, result, error))

    def until_closed(self) -> None:
        """Read and forget until the client closes."""
        while self.sock.recv(65536):
            pass

    def reset(self) -> None:
        """Close with unread bytes in the socket, which the client sees as ECONNRESET."""
        self.sock.close()


Script = Callable[[Peer], None]


def response(msgid: int, result: Any, error: Any = None) -> bytes:
    packed: bytes = msgpack.packb([1, msgid, error, result])
    return packed


def answering(result: Any, error: Any = None) -> Script:
    """A script that answers every request alike."""

    def script(peer: Peer) -> None:
        while True:
            msgid, _, _ = peer.read()
            peer.reply(msgid, result, error)

    return script


ALLOWING = answering(ALLOWED)


def saying(make: Callable[[int], bytes]) -> Script:
    """A script that answers every request with the bytes made for its msgid, and waits."""

    def script(peer: Peer) -> None:
        while True:
            msgid, _, _ = peer.read()
            peer.send(make(msgid))

    return script


def silent(peer: Peer) -> None:
    peer.until_closed()


def closing(peer: Peer) -> None:
    peer.read()


class FakeAgent:
    def __init__(self, path: Path, script: Script = ALLOWING) -> None:
        self.path = path
        self.script = script
        self.requests: list[tuple[int, int, str, list[Any]]] = []
        self.peers: list[Peer] = []
        self.errors: list[BaseException] = []
        self._threads: list[threading.Thread] = []
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(128)
        self._start(self._accept)

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            peer = Peer(self, sock, len(self.peers))
            self.peers.append(peer)
            self._start(self._serve, peer)

    def _serve(self, peer: Peer) -> None:
        try:
            self.script(peer)
        except (Gone, OSError):
            pass
        except BaseException as e:
            self.errors.append(e)
        finally:
            peer.sock.close()

    def close(self) -> None:
        """Stop, and fail if a script failed."""
        _shutdown(self._listener)
        self._threads[0].join(5)
        for peer in self.peers:
            _shutdown(peer.sock)
        for thread in self._threads:
            thread.join(5)
            assert not thread.is_alive(), "a script did not end"
        self._listener.close()
        for error in self.errors:
            raise error

    def __enter__(self) -> FakeAgent:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _shutdown(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def eventually(condition: Callable[[], bool]) -> None:
    """Poll until the condition holds; fail after five seconds."""
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline, "did not become true in 5 s"
        time.sleep(0.002)
