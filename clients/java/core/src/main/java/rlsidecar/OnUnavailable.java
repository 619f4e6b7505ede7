package rlsidecar;

/** What a call does that gets no decision, because the agent is away or cannot decide. */
public enum OnUnavailable {
  /** It is allowed, and {@link Decision#degraded} says so. */
  ALLOW,
  /** It is denied, to be tried again after a second. */
  DENY,
  /** It throws {@link UnavailableException}. */
  RAISE
}
