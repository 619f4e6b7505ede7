"""Spends one limit of 12 calls from four web applications; their ports are the arguments."""

import itertools
import math
import socket
import sys
import time
import urllib.error
import urllib.request

KEY, LIMIT = "ann", 12
NAMES = ["Flask", "Spring Boot", "PHP-FPM", "Go"]


def get(port: str) -> tuple[int, str]:
    """Return the status and what the application says is left."""
    url = f"http://127.0.0.1:{port}/?user={KEY}"
    request = urllib.request.Request(url, headers={"X-Api-Key": KEY})
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.headers["X-RateLimit-Remaining"]
    except urllib.error.HTTPError as refused:
        return refused.code, f"retry after {refused.headers['Retry-After']} s"


def wait_for(port: str) -> None:
    """Return when somebody listens, without a request that would count."""
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", int(port)), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    sys.exit(f"nobody listens on port {port}")


def main(ports: list[str]) -> None:
    for port in ports:
        wait_for(port)
    passed, refused, began = 0, set(), time.monotonic()
    for i in itertools.count():
        name, port = NAMES[i % len(ports)], ports[i % len(ports)]
        status, left = get(port)
        print(f"  {name:12} {status}  {left}")
        if status == 200:
            passed += 1
        elif status == 429:
            refused.add(name)
        else:
            sys.exit(f"{name} answered {status}")
        if len(refused) == len(ports) or i > 4 * LIMIT:
            break
    print(f"\n{passed} calls passed in all four together, of a limit of {LIMIT} a minute")
    refilled = math.ceil((time.monotonic() - began) * LIMIT / 60)
    sys.exit(0 if LIMIT <= passed <= LIMIT + refilled else 1)


main(sys.argv[1:])
