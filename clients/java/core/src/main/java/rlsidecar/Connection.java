// One connection to the agent, one call at a time.
package rlsidecar;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.util.Optional;
import java.util.concurrent.ThreadLocalRandom;

/**
 * A connected channel with a selector to wait on, since only so a read has a time limit.
 *
 * <p>Nothing lies in the channel between two calls but notifications. Whoever breaks off between the
 * write and the end of the read leaves a reply behind that the next caller would take for its own.
 * So a call ends with its reply, or the connection is closed. The msgid is the second line of
 * defence: it starts at random, so that a reply to somebody else does not happen to carry the number
 * that is waited for.
 *
 * <p>A connection is used by one thread at a time; the pool hands it over.
 */
final class Connection implements AutoCloseable {
  static final int MAX_MSGID = Integer.MAX_VALUE;

  private final SocketChannel channel;
  private final Selector selector;
  private final SelectionKey key;
  private final Inbox inbox = new Inbox();
  private final Packer outbox = new Packer();
  private int msgid;

  /** Which life of the pool it belongs to. */
  final int life;

  Connection(SocketChannel channel, int life) throws IOException {
    this(channel, life, randomMsgid());
  }

  Connection(SocketChannel channel, int life, int msgid) throws IOException {
    this.channel = channel;
    this.life = life;
    this.msgid = msgid;
    this.selector = channel.provider().openSelector();
    this.key = register();
  }

  private SelectionKey register() throws IOException {
    try {
      return channel.register(selector, SelectionKey.OP_READ);
    } catch (ClosedChannelException e) {
      selector.close();
      throw e;
    }
  }

  static int randomMsgid() {
    return ThreadLocalRandom.current().nextInt() & MAX_MSGID;
  }

  /**
   * Asks, and reads the answer.
   *
   * @param deadline on System.nanoTime
   * @throws RlSidecarException when there is no answer, or it is an error; the connection is closed
   *     unless {@link #isOpen}
   */
  <T> T call(Question<T> question, long deadline, Interruption interruption) {
    boolean answered = false;
    try {
      Unpacker reply = exchange(question, deadline, interruption);
      try {
        T answer = Reply.read(reply, question);
        answered = true;
        return answer;
      } catch (ProtocolException e) {
        throw e;
      } catch (RlSidecarException e) {
        answered = true;
        throw e;
      }
    } finally {
      if (!answered) {
        close();
      }
    }
  }

  private Unpacker exchange(Question<?> question, long deadline, Interruption interruption) {
    long before = inbox.received();
    int id = msgid;
    msgid = id + 1 & MAX_MSGID;
    question.pack(outbox.clear(), id);
    try {
      send(outbox.toBuffer(), deadline, interruption);
      return receive(id, question.waits(), deadline, interruption);
    } catch (ClosedByInterruptException e) {
      throw new UnavailableException("an interrupt closed the connection to the agent");
    } catch (IOException e) {
      throw broken(before, "the connection to the agent broke: " + e.getMessage());
    }
  }

  private void send(ByteBuffer request, long deadline, Interruption interruption) throws IOException {
    channel.write(request);
    if (!request.hasRemaining()) {
      return;
    }
    key.interestOps(SelectionKey.OP_WRITE);
    while (request.hasRemaining()) {
      if (!await(deadline, interruption)) {
        throw new AgentTimeoutException("the agent does not read its requests");
      }
      channel.write(request);
    }
    key.interestOps(SelectionKey.OP_READ);
  }

  private Unpacker receive(int id, boolean waits, long deadline, Interruption interruption)
      throws IOException {
    long before = inbox.received();
    while (true) {
      boolean inTime = await(deadline, interruption);
      if (waits && interruption.seen()) {
        throw new GivenUpException();
      }
      int read = inbox.receive(channel);
      if (read < 0) {
        throw broken(before, "the agent closed the connection");
      }
      Unpacker reply = read > 0 ? takeReply(id) : null;
      if (reply != null) {
        return reply;
      }
      if (!inTime && inbox.isDrained()) {
        throw new AgentTimeoutException("the agent did not answer in time");
      }
    }
  }

  /** Waits for the channel. False when the deadline has passed; what has come by then may be read. */
  private boolean await(long deadline, Interruption interruption) throws IOException {
    long left = deadline - System.nanoTime();
    if (left <= 0) {
      return false;
    }
    selector.select((left + 999_999) / 1_000_000);
    selector.selectedKeys().clear();
    interruption.seen();
    return true;
  }

  /** The reply, once it is there whole and nothing but notifications surrounds it. */
  private Unpacker takeReply(int id) {
    Unpacker reply = null;
    for (Unpacker message = inbox.take(); message != null; message = inbox.take()) {
      Optional<Long> answered = Reply.msgid(message);
      if (!answered.isPresent()) {
        continue;
      }
      if (reply != null || answered.get() != id) {
        throw new ProtocolException("the agent answered call " + answered.get() + ", which was not asked");
      }
      reply = message;
    }
    if (reply != null && !inbox.isEmpty()) {
      throw new ProtocolException("the agent's reply is followed by stray bytes");
    }
    return reply;
  }

  private UnavailableException broken(long before, String message) {
    return inbox.received() == before
        ? new LostException(message)
        : new UnavailableException(message + " in the middle of a reply");
  }

  boolean isOpen() {
    return channel.isOpen();
  }

  @Override
  public void close() {
    Dialer.close(channel);
    try {
      selector.close();
    } catch (IOException e) {
      // As with the channel: it was not to be used again anyway.
    }
  }
}
