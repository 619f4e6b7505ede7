"""Where the settings come from: the constructor, then the environment, then the default."""

from __future__ import annotations

import os
import re
from typing import Literal, cast, get_args

from ._arguments import MAX_APP_BYTES, check_timeout
from ._errors import InvalidRequest

DEFAULT_ADDRESS = "unix:///run/rlsidecar/rlsidecar.sock"
DEFAULT_TIMEOUT = 0.05
MAX_PATH_BYTES = 107

OnUnavailable = Literal["allow", "deny", "local", "raise"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"", "0", "false", "no", "off"})


def socket_path(address: str | os.PathLike[str] | None) -> str:
    """The path to connect to. Raises ValueError for what can never be one."""
    if address is None:
        address = os.environ.get("RLSIDECAR_ADDRESS") or DEFAULT_ADDRESS
    text = os.fsdecode(address)
    path = text.removeprefix("unix://")
    refused = _SCHEME.match(text) if path == text else not path.startswith("/")
    if refused:
        raise ValueError(f"address {text!r}: write unix:///path/to/socket or a path")
    if not path or "\0" in path:
        raise ValueError(f"address {text!r}: a path must not be empty or have NUL bytes")
    size = len(os.fsencode(path))
    if size > MAX_PATH_BYTES:
        raise ValueError(f"address {text!r}: the path has {size} bytes, at most {MAX_PATH_BYTES} are allowed")
    return path


def call_timeout(seconds: float | None) -> float:
    if seconds is not None:
        return check_timeout(seconds)
    text = os.environ.get("RLSIDECAR_TIMEOUT_MS")
    if not text:
        return DEFAULT_TIMEOUT
    try:
        return check_timeout(float(text) / 1000)
    except (InvalidRequest, ValueError):
        raise ValueError(f"RLSIDECAR_TIMEOUT_MS {text!r}: allowed are more than 0 to 3600000") from None


def unavailable_mode(mode: str | None) -> OnUnavailable:
    if mode is None:
        mode = os.environ.get("RLSIDECAR_ON_UNAVAILABLE") or "allow"
    if mode not in get_args(OnUnavailable):
        there_are = ", ".join(get_args(OnUnavailable))
        raise ValueError(f"on_unavailable {mode!r}: there are {there_are}")
    return cast(OnUnavailable, mode)


def app_name(name: str | None) -> str | None:
    """The application's name, None when it has none."""
    if name is None:
        name = os.environ.get("RLSIDECAR_APP") or None
        if name is None:
            return None
    size = len(name.encode(errors="replace")) if isinstance(name, str) else 0
    if not 1 <= size <= MAX_APP_BYTES or not name.isprintable():
        raise ValueError(f"app {name!r}: write a name of 1 to {MAX_APP_BYTES} bytes")
    return name


def is_disabled() -> bool:
    text = os.environ.get("RLSIDECAR_DISABLE", "").strip().lower()
    if text not in _YES | _NO:
        raise ValueError(f"RLSIDECAR_DISABLE {text!r}: write 1 or 0")
    return text in _YES
