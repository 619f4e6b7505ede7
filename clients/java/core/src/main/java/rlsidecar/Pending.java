package rlsidecar;

import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;

/** A question that was asked asynchronously and has no answer yet. Used by the loop's thread only. */
final class Pending<T> implements Comparable<Pending<?>> {
  private static final AtomicLong COUNT = new AtomicLong();

  private final Question<T> question;
  private final Function<UnavailableException, T> otherwise;
  private final CompletableFuture<T> answer;
  private final Executor executor;
  private final long deadline;
  private final long number = COUNT.incrementAndGet();

  /** Under which it was sent last. */
  int msgid;

  /** The bytes its connection had received when it was sent. */
  long receivedBefore;

  boolean isRepeated;

  Pending(
      Question<T> question,
      Function<UnavailableException, T> otherwise,
      CompletableFuture<T> answer,
      Executor executor) {
    this.question = question;
    this.otherwise = otherwise;
    this.answer = answer;
    this.executor = executor;
    this.deadline = System.nanoTime() + question.budget();
  }

  long deadline() {
    return deadline;
  }

  void pack(Packer packer) {
    question.pack(packer, msgid);
  }

  /**
   * Takes the answer out of a message that was read up to its msgid.
   *
   * @throws ProtocolException when it has another shape; then the question is still unanswered
   */
  void answered(Unpacker message) {
    try {
      T result = Reply.read(message, question);
      complete(() -> answer.complete(result));
    } catch (ProtocolException e) {
      throw e;
    } catch (UnavailableException e) {
      fail(e);
    } catch (RlSidecarException e) {
      complete(() -> answer.completeExceptionally(e));
    }
  }

  /** The permit in an answer that came too late for its caller, if there is one in it. */
  OptionalLong permitIn(Unpacker message) {
    try {
      Object result = Reply.read(message, question);
      return result instanceof Decision ? ((Decision) result).permit() : OptionalLong.empty();
    } catch (RlSidecarException e) {
      return OptionalLong.empty();
    }
  }

  void fail(UnavailableException failure) {
    try {
      T result = otherwise.apply(failure);
      complete(() -> answer.complete(result));
    } catch (RlSidecarException e) {
      complete(() -> answer.completeExceptionally(e));
    }
  }

  /** Hands over to the executor; one that takes no more tasks must not leave the caller waiting. */
  private void complete(Runnable completion) {
    try {
      executor.execute(completion);
    } catch (RejectedExecutionException e) {
      completion.run();
    }
  }

  @Override
  public int compareTo(Pending<?> other) {
    int byDeadline = Long.signum(deadline - other.deadline);
    return byDeadline != 0 ? byDeadline : Long.compare(number, other.number);
  }
}
