// What the client says, in MessagePack. Own code, because the usual library warns on new JDKs
// about how it reaches memory, and because a thin client brings no dependencies along.
package rlsidecar;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** Writes MessagePack values, each in its shortest form, into an array that grows. */
final class Packer {
  private byte[] bytes;
  private int size;

  Packer() {
    this(256);
  }

  Packer(int capacity) {
    bytes = new byte[capacity];
  }

  /** Forgets what was written. */
  Packer clear() {
    size = 0;
    return this;
  }

  ByteBuffer toBuffer() {
    return ByteBuffer.wrap(bytes, 0, size);
  }

  byte[] toBytes() {
    return Arrays.copyOf(bytes, size);
  }

  Packer array(int items) {
    return items < 16 ? put(0x90 | items) : put(0xdc).big(items, 2);
  }

  Packer map(int pairs) {
    return pairs < 16 ? put(0x80 | pairs) : put(0xde).big(pairs, 2);
  }

  /** A number that is not negative. */
  Packer number(long value) {
    if (value < 0x80) {
      return put((int) value);
    }
    if (value < 0x100) {
      return put(0xcc).big(value, 1);
    }
    if (value < 0x10000) {
      return put(0xcd).big(value, 2);
    }
    return value < 0x100000000L ? put(0xce).big(value, 4) : put(0xcf).big(value, 8);
  }

  Packer text(String value) {
    return text(value.getBytes(StandardCharsets.UTF_8));
  }

  Packer text(byte[] utf8) {
    if (utf8.length < 32) {
      put(0xa0 | utf8.length);
    } else if (utf8.length < 0x100) {
      put(0xd9).big(utf8.length, 1);
    } else {
      put(0xda).big(utf8.length, 2);
    }
    return raw(utf8);
  }

  Packer binary(byte[] value) {
    return (value.length < 0x100 ? put(0xc4).big(value.length, 1) : put(0xc5).big(value.length, 2)).raw(value);
  }

  /** Bytes that are MessagePack already. */
  Packer raw(byte[] packed) {
    room(packed.length);
    System.arraycopy(packed, 0, bytes, size, packed.length);
    size += packed.length;
    return this;
  }

  private Packer put(int octet) {
    room(1);
    bytes[size++] = (byte) octet;
    return this;
  }

  private Packer big(long value, int octets) {
    room(octets);
    for (int shift = 8 * (octets - 1); shift >= 0; shift -= 8) {
      bytes[size++] = (byte) (value >>> shift);
    }
    return this;
  }

  private void room(int more) {
    if (bytes.length - size < more) {
      bytes = Arrays.copyOf(bytes, Math.max(2 * bytes.length, size + more));
    }
  }
}
