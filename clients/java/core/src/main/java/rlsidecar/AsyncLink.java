// The connection of the asynchronous calls, with many of them under way at once.
package rlsidecar;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Consumer;

/**
 * A connected channel, and the calls whose replies are to come, in any order.
 *
 * <p>A call that ran out of time is forgotten: its msgid is remembered, so that its late reply can be
 * told from one to a question that nobody asked, which ends the connection. So does a call that runs
 * out of time in the middle of a message, and so do too many forgotten ones: the agent does not
 * answer any more.
 */
final class AsyncLink {
  private static final int MAX_UNANSWERED = 1024;

  private final SocketChannel channel;
  private final SelectionKey key;
  private final Inbox inbox = new Inbox();
  private final Packer outbox = new Packer(4096);
  private final Map<Integer, Pending<?>> inFlight = new HashMap<>();
  private final Map<Integer, Pending<?>> forgotten = new HashMap<>();
  private int written;
  private int msgid = Connection.randomMsgid();

  AsyncLink(SocketChannel channel, Selector selector) throws IOException {
    this.channel = channel;
    this.key = channel.register(selector, SelectionKey.OP_READ);
  }

  boolean hasRoom() {
    return inFlight.size() + forgotten.size() < MAX_UNANSWERED;
  }

  /** Puts a call among those to be written by the next flush. */
  void add(Pending<?> call) {
    call.msgid = msgid;
    call.receivedBefore = inbox.received();
    msgid = msgid + 1 & Connection.MAX_MSGID;
    inFlight.put(call.msgid, call);
    call.pack(outbox);
  }

  /** Writes what the channel takes. */
  void flush() throws IOException {
    ByteBuffer rest = outbox.toBuffer();
    rest.position(written);
    if (rest.hasRemaining()) {
      channel.write(rest);
    }
    written = rest.position();
    key.interestOps(rest.hasRemaining() ? SelectionKey.OP_READ | SelectionKey.OP_WRITE : SelectionKey.OP_READ);
    if (!rest.hasRemaining()) {
      outbox.clear();
      written = 0;
    }
  }

  /**
   * Reads what is there and answers the calls it is for.
   *
   * @param done gets each call that was answered
   * @throws UnavailableException when the connection is of no use any more
   */
  void receive(Consumer<Pending<?>> done) throws IOException {
    int read = inbox.receive(channel);
    while (read > 0) {
      for (Unpacker message = inbox.take(); message != null; message = inbox.take()) {
        Optional<Long> answered = Reply.msgid(message);
        if (answered.isPresent()) {
          deliver(answered.get(), message, done);
        }
      }
      read = inbox.receive(channel);
    }
    if (read < 0) {
      throw new LostException("the agent closed the connection");
    }
  }

  private void deliver(long id, Unpacker message, Consumer<Pending<?>> done) {
    int known = id > Connection.MAX_MSGID || id < 0 ? -1 : (int) id;
    Pending<?> call = inFlight.get(known);
    if (call != null) {
      call.answered(message);
      inFlight.remove(known);
      done.accept(call);
      return;
    }
    Pending<?> late = forgotten.remove(known);
    if (late == null) {
      throw new ProtocolException("the agent answered call " + id + ", which was not asked");
    }
    late.permitIn(message).ifPresent(this::release);
  }

  /** Gives back a permit that came too late, by a notification. */
  private void release(long permit) {
    outbox.array(3).number(Reply.NOTIFICATION).text("release").array(1).number(permit);
  }

  /** No longer waits for the reply to a call. False: the connection is of no use any more. */
  boolean forget(Pending<?> call) {
    if (inFlight.remove(call.msgid, call)) {
      forgotten.put(call.msgid, call);
    }
    return inbox.isEmpty() && forgotten.size() < MAX_UNANSWERED;
  }

  /** Whether a call may be asked again: the connection had served others, and nothing came since. */
  boolean mayRepeat(Pending<?> call) {
    return !call.isRepeated && call.receivedBefore > 0 && call.receivedBefore == inbox.received();
  }

  List<Pending<?>> unanswered() {
    return new ArrayList<>(inFlight.values());
  }

  void close() {
    Dialer.close(channel);
  }
}
