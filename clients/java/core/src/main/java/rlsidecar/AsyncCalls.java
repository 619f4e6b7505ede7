// Asking without blocking: who starts the thread that does it, and when it ends.
package rlsidecar;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Function;

/** Hands questions to a loop, which is started by the first one, and again after a close. */
final class AsyncCalls {
  private final Dialer dialer;
  private final Executor executor;
  private final AtomicReference<AsyncLoop> running = new AtomicReference<>();

  AsyncCalls(Dialer dialer, Executor executor) {
    this.dialer = dialer;
    this.executor = executor;
  }

  /** The common pool, or a thread each where that has one thread only, as CompletableFuture does it. */
  static Executor commonPool() {
    return ForkJoinPool.getCommonPoolParallelism() > 1
        ? ForkJoinPool.commonPool()
        : task -> new Thread(task).start();
  }

  /**
   * Asks, and completes the answer on the executor.
   *
   * @param otherwise what to answer when the agent gives no decision
   */
  <T> void ask(
      Question<T> question, Function<UnavailableException, T> otherwise, CompletableFuture<T> answer) {
    Pending<T> pending = new Pending<>(question, otherwise, answer, executor);
    AsyncLoop loop = running.get();
    while (loop == null || !loop.submit(pending)) {
      AsyncLoop fresh;
      try {
        fresh = new AsyncLoop(dialer);
      } catch (UnavailableException e) {
        pending.fail(e);
        return;
      }
      if (running.compareAndSet(loop, fresh)) {
        fresh.start();
      } else {
        fresh.discard();
      }
      loop = running.get();
    }
  }

  void close() {
    AsyncLoop loop = running.getAndSet(null);
    if (loop != null) {
      loop.end();
    }
  }
}
