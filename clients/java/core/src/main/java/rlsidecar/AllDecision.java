package rlsidecar;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;

/** The answer to {@code tryAcquireAll}: all were allowed, or nothing was taken from any. */
public final class AllDecision {
  private final boolean allowed;
  private final List<Decision> decisions;

  AllDecision(boolean allowed, List<Decision> decisions) {
    this.allowed = allowed;
    this.decisions = Collections.unmodifiableList(new ArrayList<>(decisions));
  }

  /**
   * Whether all calls may go through.
   *
   * @return true when they may
   */
  public boolean allowed() {
    return allowed;
  }

  /**
   * One decision for each call.
   *
   * @return in the order of the calls; cannot be changed
   */
  public List<Decision> decisions() {
    return decisions;
  }

  /**
   * Whether one of the decisions is degraded.
   *
   * @return true when one is
   */
  public boolean degraded() {
    return decisions.stream().anyMatch(Decision::degraded);
  }

  @Override
  public String toString() {
    return (allowed ? "all allowed " : "not all allowed ") + decisions;
  }
}
