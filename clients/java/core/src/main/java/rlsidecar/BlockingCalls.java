// How a blocking call finds its connection, and what becomes of that afterwards.
package rlsidecar;

import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/**
 * Asks once; once more only if a connection that was used before turns out to be dead.
 *
 * <p>Plain calls share so many connections; one too many waits for its turn, within its budget. That
 * turn comes soon, as each ends within its timeout. Calls that wait for permits do not, so they do
 * not count.
 */
final class BlockingCalls {
  private final Pool pool;
  private final Semaphore turns;

  BlockingCalls(Pool pool, int maxConnections) {
    this.pool = pool;
    this.turns = new Semaphore(maxConnections);
  }

  <T> T ask(Question<T> question) {
    return ask(question, pool::give);
  }

  /** Asks, and hands the connection over with the answer, instead of to the pool. */
  <T> T ask(Question<T> question, Consumer<Connection> keeper) {
    long deadline = System.nanoTime() + question.budget();
    try (Interruption interruption = new Interruption()) {
      if (question.waits()) {
        return askInTurn(pool.take(), question, deadline, interruption, keeper);
      }
      awaitTurn(deadline, interruption);
      try {
        return askInTurn(pool.take(), question, deadline, interruption, keeper);
      } finally {
        turns.release();
      }
    }
  }

  /** Asks over a connection that was handed over before, or a new one if that is dead. */
  <T> T askOver(Connection connection, Question<T> question) {
    long deadline = System.nanoTime() + question.budget();
    try (Interruption interruption = new Interruption()) {
      return askInTurn(connection, question, deadline, interruption, pool::give);
    }
  }

  private void awaitTurn(long deadline, Interruption interruption) {
    boolean mine = turns.tryAcquire();
    while (!mine && deadline - System.nanoTime() > 0) {
      try {
        mine = turns.tryAcquire(deadline - System.nanoTime(), TimeUnit.NANOSECONDS);
      } catch (InterruptedException e) {
        interruption.note();
      }
    }
    if (!mine) {
      throw new AgentTimeoutException("all connections were in use until the budget was spent");
    }
  }

  private <T> T askInTurn(
      Connection used,
      Question<T> question,
      long deadline,
      Interruption interruption,
      Consumer<Connection> keeper) {
    if (question.waits() && interruption.seen()) {
      if (used != null) {
        pool.give(used);
      }
      throw new GivenUpException();
    }
    if (used != null) {
      try {
        return askOnce(used, question, deadline, interruption, keeper);
      } catch (LostException e) {
        pool.closeIdle();
      }
    }
    return askOnce(pool.connect(deadline, interruption), question, deadline, interruption, keeper);
  }

  /** One call on one connection, which is handed on afterwards or closed. */
  private <T> T askOnce(
      Connection connection,
      Question<T> question,
      long deadline,
      Interruption interruption,
      Consumer<Connection> keeper) {
    T answer;
    try {
      answer = connection.call(question, deadline, interruption);
    } catch (RlSidecarException e) {
      if (connection.isOpen()) {
        pool.give(connection);
      }
      throw e;
    }
    keeper.accept(connection);
    return answer;
  }
}
