package rlsidecar;

import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Predicate;

/**
 * A permit of a concurrency limit, for a {@code try} block.
 *
 * <p>The agent takes permits back by itself: from a process without a connection after a second, and
 * from anybody after the limit's longest hold. So a connection is set aside for the hold, that no
 * call uses until the release. Should it break, the permit may be lost.
 */
public final class Permit implements AutoCloseable {
  private final Decision decision;
  private final AtomicReference<Connection> kept;
  private final Predicate<Connection> giveBack;

  Permit(Decision decision, Connection kept, Predicate<Connection> giveBack) {
    this.decision = decision;
    this.kept = new AtomicReference<>(kept);
    this.giveBack = giveBack;
  }

  /**
   * What let the block run. Without a permit when the key is exempt, or when nobody decided and
   * {@link OnUnavailable#ALLOW} applies; then it is degraded.
   *
   * @return a decision that is allowed
   */
  public Decision decision() {
    return decision;
  }

  /**
   * Gives the permit back. Never throws.
   *
   * @return true: the agent took it. False: there is none any more, or the agent did not answer, and
   *     will take it back by itself
   */
  public boolean release() {
    Connection connection = kept.getAndSet(null);
    return connection != null && giveBack.test(connection);
  }

  @Override
  public void close() {
    release();
  }
}
