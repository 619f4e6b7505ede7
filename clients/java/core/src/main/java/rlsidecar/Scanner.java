// Where a message ends, and whether it keeps the bounds of the wire. Lengths come from the other
// side, so each is compared with its bound before anything is allocated or waited for.
package rlsidecar;

/**
 * Finds the end of one message in bytes that arrive piece by piece. Goes on where it stopped, so
 * that a message in many pieces is not looked at again from its start.
 */
final class Scanner {
  static final int MAX_MESSAGE = 64 * 1024;
  static final int MAX_ITEMS = 1024;
  static final int MAX_DEPTH = 8;

  // By tag, from 0xc0 to 0xdf: bytes that tell a length, and bytes that follow in any case.
  private static final byte[] LENGTH_BYTES = {
    0, 0, 0, 0, 1, 2, 4, 1, 2, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 4, 2, 4, 2, 4
  };
  private static final byte[] FIXED_BYTES = {
    0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 2, 3, 5, 9, 17, 0, 0, 0, 0, 0, 0, 0
  };

  private final int[] left = new int[MAX_DEPTH]; // items still to come, by depth
  private int depth;
  private int start;
  private int at;

  void reset(int position) {
    start = position;
    at = position;
    depth = 0;
  }

  /** The position after the message, once it was found. */
  int position() {
    return at;
  }

  /** The bytes moved to the front of their array. */
  void shift(int by) {
    start -= by;
    at -= by;
  }

  /**
   * Whether the message that starts at the last reset is in bytes up to end as a whole.
   *
   * @throws ProtocolException when it is not MessagePack, or over a bound
   */
  boolean isComplete(byte[] bytes, int end) {
    do {
      if (!element(bytes, end)) {
        return false;
      }
      while (depth > 0 && left[depth - 1] == 0) {
        depth--;
      }
    } while (depth > 0);
    return true;
  }

  private boolean element(byte[] bytes, int end) {
    if (at == end) {
      return false;
    }
    int tag = bytes[at] & 0xff;
    int lengthBytes = tag >= 0xc0 && tag < 0xe0 ? LENGTH_BYTES[tag - 0xc0] : 0;
    if (end - at <= lengthBytes) {
      return false;
    }
    long length = lengthBytes == 0 ? shortLength(tag) : Unpacker.big(bytes, at + 1, lengthBytes);
    boolean isMap = (tag & 0xf0) == 0x80 || tag == 0xde || tag == 0xdf;
    boolean isArray = (tag & 0xf0) == 0x90 || tag == 0xdc || tag == 0xdd;
    long next = at + 1L + lengthBytes + (isMap || isArray ? 0 : length + fixedBytes(tag));
    if (next - start > MAX_MESSAGE) {
      throw new ProtocolException("the agent's message is over " + MAX_MESSAGE + " bytes");
    }
    if (next > end) {
      return false;
    }
    if (depth > 0) {
      left[depth - 1]--;
    }
    if (isMap || isArray) {
      enter(length, isMap);
    }
    at = (int) next;
    return true;
  }

  private void enter(long length, boolean isMap) {
    if (length > MAX_ITEMS) {
      throw new ProtocolException(
          "the agent's message has a list or map of " + length + " items, allowed are " + MAX_ITEMS);
    }
    if (depth == MAX_DEPTH) {
      throw new ProtocolException("the agent's message is nested deeper than " + MAX_DEPTH);
    }
    left[depth++] = (int) (isMap ? 2 * length : length);
  }

  private static int shortLength(int tag) {
    if (tag >= 0x80 && tag < 0xa0) {
      return tag & 0x0f;
    }
    return tag >= 0xa0 && tag < 0xc0 ? tag & 0x1f : 0;
  }

  private static int fixedBytes(int tag) {
    if (tag == 0xc1) {
      throw new ProtocolException("the agent's bytes are not MessagePack: c1");
    }
    return tag >= 0xc0 && tag < 0xe0 ? FIXED_BYTES[tag - 0xc0] : 0;
  }
}
