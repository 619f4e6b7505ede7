"""A Flask application behind one policy that it shares with whoever else names it.

    python examples/flask_app.py 8001

Run an agent with a policy `api` first, and say where it is in RLSIDECAR_ADDRESS unless
it is at its usual place. The key is the header X-Api-Key, or the visitor's address.
"""

import sys

from flask import Flask, request

from rlsidecar.flask import Limiter, get_remote_address


def visitor() -> str | None:
    return request.headers.get("X-Api-Key") or get_remote_address()


app = Flask(__name__)
limiter = Limiter(app, key_func=visitor)


@app.get("/")
@limiter.limit("api")
def hello() -> dict[str, object]:
    decision = limiter.current_decision
    assert decision is not None
    return {"from": "flask", "remaining": decision.remaining, "degraded": decision.degraded}


if __name__ == "__main__":
    app.run(port=int(sys.argv[1]) if len(sys.argv) > 1 else 8001)
