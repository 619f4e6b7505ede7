package rlsidecar;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.Arrays;

/**
 * The bytes received on one connection, cut into messages. Memory grows with the bytes that are
 * there, up to one message, never with a length that was announced.
 */
final class Inbox {
  private byte[] bytes = new byte[512];
  private ByteBuffer buffer = ByteBuffer.wrap(bytes);
  private final Scanner scanner = new Scanner();
  private int start; // of the message under way
  private long received;

  /** How many bytes were ever received. */
  long received() {
    return received;
  }

  /** Whether all that was received belongs to messages that were taken. */
  boolean isEmpty() {
    return start == buffer.position();
  }

  /** Whether the last receive found less than there was room for. */
  boolean isDrained() {
    return buffer.hasRemaining();
  }

  /** Reads what is there without blocking: the number of bytes, -1 at the end. */
  int receive(SocketChannel channel) throws IOException {
    if (!buffer.hasRemaining()) {
      grow();
    }
    int read = channel.read(buffer);
    received += Math.max(0, read);
    return read;
  }

  /**
   * The next message, or null when it is not there as a whole. Good until the next receive.
   *
   * @throws ProtocolException when it is not MessagePack, or over a bound
   */
  Unpacker take() {
    if (isEmpty() || !scanner.isComplete(bytes, buffer.position())) {
      return null;
    }
    Unpacker message = new Unpacker(bytes, start);
    start = scanner.position();
    if (isEmpty()) {
      buffer.clear();
      start = 0;
    }
    scanner.reset(start);
    return message;
  }

  private void grow() {
    if (start > 0) {
      buffer.limit(buffer.position()).position(start);
      buffer.compact();
      scanner.shift(start);
      start = 0;
      return;
    }
    if (bytes.length >= Scanner.MAX_MESSAGE) {
      throw new ProtocolException("the agent's message is over " + Scanner.MAX_MESSAGE + " bytes");
    }
    int filled = bytes.length;
    bytes = Arrays.copyOf(bytes, 2 * filled);
    buffer = ByteBuffer.wrap(bytes);
    buffer.position(filled);
  }
}
