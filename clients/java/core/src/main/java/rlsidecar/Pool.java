// The connections of one client that are not in use.
package rlsidecar;

import java.io.IOException;
import java.nio.channels.SocketChannel;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;

/**
 * Idle connections, the last one used on top. There is no lock: a connection that was taken belongs
 * to its caller alone.
 */
final class Pool {
  private static final long SHORTEST_BACKLOG_PAUSE = 500_000;
  private static final long LONGEST_BACKLOG_PAUSE = 5_000_000;

  private final Dialer dialer;
  private final int maxIdle;
  private final ConcurrentLinkedDeque<Connection> idle = new ConcurrentLinkedDeque<>();
  private final AtomicInteger idleCount = new AtomicInteger();
  private final AtomicInteger life = new AtomicInteger();

  Pool(Dialer dialer, int maxIdle) {
    this.dialer = dialer;
    this.maxIdle = maxIdle;
  }

  /** An idle connection, or null. */
  Connection take() {
    Connection connection = idle.pollFirst();
    if (connection != null) {
      idleCount.decrementAndGet();
    }
    return connection;
  }

  void give(Connection connection) {
    if (idleCount.incrementAndGet() > maxIdle) {
      idleCount.decrementAndGet();
      connection.close();
      return;
    }
    idle.addFirst(connection);
    if (connection.life != life.get()) {
      closeIdle();
    }
  }

  /**
   * A new connection.
   *
   * @throws AgentNotRunningException when nobody can be reached
   * @throws AgentTimeoutException when the agent's backlog stays full until the deadline
   */
  Connection connect(long deadline, Interruption interruption) {
    long pause = SHORTEST_BACKLOG_PAUSE;
    long left = deadline - System.nanoTime();
    while (left > 0) {
      int born = life.get();
      SocketChannel channel = dialer.dial();
      if (channel != null) {
        return wrap(channel, born);
      }
      LockSupport.parkNanos(Math.min(pause, left));
      interruption.seen();
      pause = Math.min(2 * pause, LONGEST_BACKLOG_PAUSE);
      left = deadline - System.nanoTime();
    }
    throw new AgentTimeoutException("could not connect to the agent in time, its backlog is full");
  }

  private Connection wrap(SocketChannel channel, int born) {
    try {
      return new Connection(channel, born);
    } catch (IOException e) {
      Dialer.close(channel);
      throw new UnavailableException("cannot open a selector: " + e.getMessage());
    }
  }

  void closeIdle() {
    for (Connection connection = take(); connection != null; connection = take()) {
      connection.close();
    }
  }

  /** Closes what is idle now, and what is in use as soon as it comes back. */
  void close() {
    life.incrementAndGet();
    closeIdle();
  }
}
