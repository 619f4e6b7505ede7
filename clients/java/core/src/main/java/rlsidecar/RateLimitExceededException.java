package rlsidecar;

/** A denial, thrown by {@code acquireOrThrow} and {@code hold}. {@code tryAcquire} never throws it. */
public final class RateLimitExceededException extends RlSidecarException {
  private static final long serialVersionUID = 1;

  private final transient Decision decision;

  /**
   * For code of your own that prefers an exception.
   *
   * @param decision the denial
   */
  public RateLimitExceededException(Decision decision) {
    super("rate limited: " + decision.whenToRetry());
    this.decision = decision;
  }

  /**
   * The denial.
   *
   * @return null only after the exception was serialized
   */
  public Decision decision() {
    return decision;
  }
}
