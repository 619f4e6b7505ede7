// The one place where having no answer is dealt with, for every method and for both ways of asking.
package rlsidecar;

import java.util.concurrent.atomic.AtomicLong;
import java.util.logging.Level;
import java.util.logging.Logger;

/** Does what {@link OnUnavailable} says, and logs one line per interval. */
final class Unanswered {
  private static final Logger LOG = Logger.getLogger("rlsidecar");
  private static final long LOG_INTERVAL = 10_000_000_000L;

  private final OnUnavailable mode;
  private final Substitute substitute;
  private final AtomicLong quietUntil = new AtomicLong(System.nanoTime());
  private final AtomicLong unreported = new AtomicLong();

  Unanswered(OnUnavailable mode) {
    this.mode = mode;
    this.substitute = Substitute.of(mode);
  }

  /**
   * The answer to a question that the agent did not answer.
   *
   * @throws UnavailableException in mode RAISE
   */
  <T> T answer(Question<T> question, UnavailableException failure) {
    if (failure instanceof GivenUpException) {
      return question.without(Substitute.DENY);
    }
    report(failure);
    if (mode == OnUnavailable.RAISE) {
      throw failure.withStack();
    }
    return question.without(substitute);
  }

  void report(RlSidecarException failure) {
    long now = System.nanoTime();
    long until = quietUntil.get();
    if (now - until < 0 || !quietUntil.compareAndSet(until, now + LOG_INTERVAL)) {
      unreported.incrementAndGet();
      return;
    }
    LOG.log(
        Level.WARNING,
        "no decision from the agent, onUnavailable={0} applies: {1} ({2} more since the last such line)",
        new Object[] {mode, failure.getMessage(), unreported.getAndSet(0)});
  }
}
