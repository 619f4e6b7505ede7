package rlsidecar;

/**
 * Keeps a thread's interrupt out of a call and gives it back at the end. An interrupt makes NIO
 * close the channel, even when it came before the call, and a selector return at once; the pool
 * would lose its connections to threads that were told to stop. A call is short, so the interrupt
 * waits for its end.
 */
final class Interruption implements AutoCloseable {
  private boolean seen = Thread.interrupted();

  /** Whether the thread was interrupted, before the call or since. Clears the thread's flag. */
  boolean seen() {
    if (Thread.interrupted()) {
      seen = true;
    }
    return seen;
  }

  void note() {
    seen = true;
  }

  @Override
  public void close() {
    if (seen) {
      Thread.currentThread().interrupt();
    }
  }
}
