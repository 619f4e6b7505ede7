// Reading the values of a message that the Scanner has found whole and within bounds.
package rlsidecar;

import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Reads MessagePack values one after another; one of another type is a ProtocolException. */
final class Unpacker {
  private final byte[] bytes;
  private int at;

  Unpacker(byte[] bytes, int at) {
    this.bytes = bytes;
    this.at = at;
  }

  /** The number in so many bytes, highest first. Eight bytes above 2^63-1 come out negative. */
  static long big(byte[] bytes, int at, int octets) {
    long value = 0;
    for (int i = 0; i < octets; i++) {
      value = value << 8 | bytes[at + i] & 0xff;
    }
    return value;
  }

  private int tag() {
    return bytes[at] & 0xff;
  }

  /** The number of items of a list. */
  int array() {
    int tag = tag();
    if ((tag & 0xf0) == 0x90) {
      at++;
      return tag & 0x0f;
    }
    if (tag == 0xdc || tag == 0xdd) {
      return (int) following(tag == 0xdc ? 2 : 4);
    }
    throw unexpected("a list");
  }

  boolean isArray() {
    int tag = tag();
    return (tag & 0xf0) == 0x90 || tag == 0xdc || tag == 0xdd;
  }

  /** The number of pairs of a map. */
  int map() {
    int tag = tag();
    if ((tag & 0xf0) == 0x80) {
      at++;
      return tag & 0x0f;
    }
    if (tag == 0xde || tag == 0xdf) {
      return (int) following(tag == 0xde ? 2 : 4);
    }
    throw unexpected("a map");
  }

  /** Passes over a nil. False: there is something else, and it is still to be read. */
  boolean nil() {
    if (tag() != 0xc0) {
      return false;
    }
    at++;
    return true;
  }

  boolean bool() {
    int tag = tag();
    if (tag != 0xc2 && tag != 0xc3) {
      throw unexpected("true or false");
    }
    at++;
    return tag == 0xc3;
  }

  boolean isInteger() {
    int tag = tag();
    return tag < 0x80 || tag >= 0xe0 || tag >= 0xcc && tag <= 0xd3;
  }

  /** A whole number, -2^63 to 2^63-1, in any encoding. */
  long integer() {
    if (!isInteger()) {
      throw unexpected("a whole number");
    }
    int tag = tag();
    if (tag < 0x80 || tag >= 0xe0) {
      return bytes[at++];
    }
    int octets = 1 << (tag & 3);
    if (tag < 0xd0) {
      long value = following(octets);
      if (value < 0) {
        throw new ProtocolException(
            "the agent sent " + Long.toUnsignedString(value) + ", which is above 2^63-1");
      }
      return value;
    }
    int unused = 64 - 8 * octets;
    return following(octets) << unused >> unused;
  }

  boolean isText() {
    int tag = tag();
    return tag >= 0xa0 && tag < 0xc0 || tag >= 0xc4 && tag <= 0xc6 || tag >= 0xd9 && tag <= 0xdb;
  }

  /** A str or bin, as text. */
  String text() {
    if (!isText()) {
      throw unexpected("a text");
    }
    int tag = tag();
    int size;
    if (tag < 0xc0) {
      size = tag & 0x1f;
      at++;
    } else {
      size = (int) following(1 << (tag < 0xd9 ? tag - 0xc4 : tag - 0xd9));
    }
    at += size;
    return new String(bytes, at - size, size, StandardCharsets.UTF_8);
  }

  /** Passes over one value with all that is in it. */
  void skip() {
    Scanner scanner = new Scanner();
    scanner.reset(at);
    scanner.isComplete(bytes, bytes.length);
    at = scanner.position();
  }

  void skip(int values) {
    for (int i = 0; i < values; i++) {
      skip();
    }
  }

  /** Any value: Map, List, String, Long, BigInteger above 2^63-1, Double, Boolean; null for others. */
  Object value() {
    int tag = tag();
    if (tag == 0xcf && bytes[at + 1] < 0) {
      return new BigInteger(Long.toUnsignedString(following(8)));
    }
    if (isInteger()) {
      return integer();
    }
    if (isText()) {
      return text();
    }
    return isArray() ? list(array()) : other(tag);
  }

  private Object other(int tag) {
    switch (tag) {
      case 0xc2:
      case 0xc3:
        return bool();
      case 0xca:
        return (double) Float.intBitsToFloat((int) following(4));
      case 0xcb:
        return Double.longBitsToDouble(following(8));
      default:
        if ((tag & 0xf0) == 0x80 || tag == 0xde || tag == 0xdf) {
          return pairs(map());
        }
        skip();
        return null;
    }
  }

  private List<Object> list(int items) {
    List<Object> list = new ArrayList<>();
    for (int i = 0; i < items; i++) {
      list.add(value());
    }
    return list;
  }

  private Map<String, Object> pairs(int pairs) {
    Map<String, Object> map = new LinkedHashMap<>();
    for (int i = 0; i < pairs; i++) {
      String name = String.valueOf(value());
      map.put(name, value());
    }
    return map;
  }

  private long following(int octets) {
    long value = big(bytes, at + 1, octets);
    at += 1 + octets;
    return value;
  }

  private ProtocolException unexpected(String wanted) {
    return new ProtocolException(
        String.format("the agent sent a value that starts with %02x where %s belongs", tag(), wanted));
  }
}
