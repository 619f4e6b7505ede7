// The thread of the asynchronous calls.
package rlsidecar;

import java.io.IOException;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Queue;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Sends, receives and expires calls, over one connection that is made when there is something to
 * send. All but the fields of the first group belong to the loop's thread.
 */
final class AsyncLoop implements Runnable {
  private static final long BACKLOG_PAUSE = 1_000_000;

  private final Queue<Pending<?>> submitted = new ConcurrentLinkedQueue<>();
  private final AtomicBoolean awake = new AtomicBoolean();
  private final Selector selector;
  private volatile boolean ended;

  private final Dialer dialer;
  private final Deque<Pending<?>> unsent = new ArrayDeque<>();
  private final TreeSet<Pending<?>> byDeadline = new TreeSet<>();
  private AsyncLink link; // null: not connected

  AsyncLoop(Dialer dialer) {
    this.dialer = dialer;
    this.selector = dialer.openSelector();
  }

  void start() {
    Thread thread = new Thread(this, "rlsidecar-async");
    thread.setDaemon(true);
    thread.setContextClassLoader(null); // it may outlive the application that made the first call
    thread.start();
  }

  /** Frees what a loop has that was never started. */
  void discard() {
    try {
      selector.close();
    } catch (IOException e) {
      // Nothing was ever registered with it.
    }
  }

  /** Takes over a call. False: the loop has ended. */
  boolean submit(Pending<?> call) {
    submitted.add(call);
    if (ended && submitted.remove(call)) {
      return false;
    }
    if (!awake.getAndSet(true)) {
      selector.wakeup();
    }
    return true;
  }

  void end() {
    ended = true;
    selector.wakeup();
  }

  @Override
  public void run() {
    try {
      while (!ended) {
        await();
        accept();
        exchange();
      }
      giveUp(new UnavailableException("the client was closed"));
    } catch (IOException | RuntimeException e) {
      giveUp(new UnavailableException("the thread of the asynchronous calls failed: " + e));
    }
  }

  private void await() throws IOException {
    awake.set(false);
    long left = submitted.isEmpty() ? untilNextEvent() : 0;
    if (left > 0) {
      selector.select((left + 999_999) / 1_000_000);
    } else {
      selector.selectNow();
    }
    selector.selectedKeys().clear();
  }

  private long untilNextEvent() {
    if (byDeadline.isEmpty()) {
      return Long.MAX_VALUE / 2;
    }
    long left = byDeadline.first().deadline() - System.nanoTime();
    return link == null && !unsent.isEmpty() ? Math.min(left, BACKLOG_PAUSE) : left;
  }

  private void accept() {
    for (Pending<?> call = submitted.poll(); call != null; call = submitted.poll()) {
      unsent.add(call);
      byDeadline.add(call);
    }
  }

  private void exchange() {
    long now = System.nanoTime(); // taken before the read, so that no call ends without a last one
    try {
      if (link != null) {
        link.receive(byDeadline::remove);
      }
      expire(now);
      send();
    } catch (UnavailableException e) {
      disconnect(e);
    } catch (IOException e) {
      disconnect(new LostException("the connection to the agent broke: " + e.getMessage()));
    }
  }

  private void send() throws IOException {
    if (link == null && !unsent.isEmpty()) {
      connect();
    }
    if (link == null) {
      return;
    }
    while (!unsent.isEmpty() && link.hasRoom()) {
      link.add(unsent.poll());
    }
    link.flush();
  }

  private void connect() throws IOException {
    try {
      SocketChannel channel = dialer.dial();
      if (channel != null) {
        link = new AsyncLink(channel, selector);
      }
    } catch (UnavailableException e) {
      while (!unsent.isEmpty()) {
        fail(unsent.poll(), e);
      }
    }
  }

  /** Closes the connection; its calls fail, but for those that may be asked again. */
  private void disconnect(UnavailableException failure) {
    AsyncLink broken = link;
    link = null;
    if (broken == null) {
      return;
    }
    broken.close();
    for (Pending<?> call : broken.unanswered()) {
      if (failure instanceof LostException && broken.mayRepeat(call)) {
        call.isRepeated = true;
        unsent.add(call);
      } else {
        fail(call, failure);
      }
    }
  }

  private void expire(long now) {
    while (!byDeadline.isEmpty() && byDeadline.first().deadline() - now <= 0) {
      Pending<?> call = byDeadline.first();
      boolean wasUnsent = unsent.remove(call);
      fail(call, new AgentTimeoutException("the agent did not answer in time"));
      if (!wasUnsent && link != null && !link.forget(call)) {
        disconnect(new AgentTimeoutException("the agent does not answer any more"));
      }
    }
  }

  private void fail(Pending<?> call, UnavailableException failure) {
    byDeadline.remove(call);
    call.fail(failure);
  }

  private void giveUp(UnavailableException failure) {
    ended = true;
    discard();
    disconnect(failure);
    accept();
    while (!byDeadline.isEmpty()) {
      fail(byDeadline.first(), failure);
    }
  }
}
