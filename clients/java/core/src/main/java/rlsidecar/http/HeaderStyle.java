package rlsidecar.http;

/** The headers that tell a client about limits. {@code Retry-After} comes with each of them. */
public enum HeaderStyle {
  /** {@code X-RateLimit-Limit}, {@code -Remaining} and {@code -Reset}. */
  X,
  /** {@code RateLimit-Policy} and {@code RateLimit}, of draft-ietf-httpapi-ratelimit-headers-10. */
  IETF,
  /** {@code Retry-After} only. */
  NONE
}
