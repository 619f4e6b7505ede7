"""What the demo shows: a policy, a caller's own limit, and what a denial says."""

import rlsidecar

client = rlsidecar.Client()


def show(what: str, decision: rlsidecar.Decision) -> None:
    if decision.allowed:
        print(f"  {what}: allowed, {decision.remaining} of {decision.limit} left")
    elif decision.retry_after is None:
        print(f"  {what}: denied, for good: more than the limit of {decision.limit} can ever give")
    else:
        print(f"  {what}: denied, retry after {decision.retry_after.total_seconds():.1f} s")


print('policy "login", 5/minute, for one user:')
for attempt in range(1, 8):
    show(f"attempt {attempt}", client.acquire("login", "user:42"))

print("\nanother user has a bucket of their own:")
show("attempt 1", client.acquire("login", "user:43"))

print('\na limit the caller brings, "100/second", in costs of 60:')
for attempt in range(1, 4):
    show(f"upload {attempt}", client.acquire("100/second", "uploads", cost=60))
show("upload of 200", client.acquire("100/second", "uploads", cost=200))

print("\nall or nothing over two limits (the second is used up):")
both = client.acquire_all([("login", "user:44"), ("login", "user:42")])
print(f"  both: {'allowed' if both.allowed else 'denied'}")
print(f"  user:44 keeps its {client.peek('login', 'user:44').remaining} permits")
