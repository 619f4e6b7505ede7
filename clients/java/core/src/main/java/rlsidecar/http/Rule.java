package rlsidecar.http;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Optional;
import rlsidecar.Call;
import rlsidecar.InvalidRequestException;
import rlsidecar.Limit;

/** A limit that requests are asked under: a policy of the agent, or one of the application's own. */
public final class Rule {
  private static final int MAX_KEY_BYTES = 1024;

  private final String name;
  private final Optional<Limit> own;

  private Rule(String name, Optional<Limit> own) {
    this.name = name;
    this.own = own;
  }

  /**
   * A policy of the agent, or a limit written as text.
   *
   * @param limit the name of a policy, or a limit like {@code "10/minute"}
   * @return a rule
   * @throws InvalidRequestException when it can be neither
   */
  public static Rule of(String limit) {
    Call.of(limit, "any");
    return new Rule(limit, Limit.ifStated(limit));
  }

  /**
   * A limit of the application's own.
   *
   * @param limit the limit
   * @return a rule
   */
  public static Rule of(Limit limit) {
    return new Rule(limit.toString(), Optional.of(limit));
  }

  String name() {
    return name;
  }

  Optional<Limit> own() {
    return own;
  }

  /**
   * The call to ask for a request. A policy is the operator's, and the same for everybody who names
   * it. A limit that the application brings along is its own: the scope keeps it apart from an equal
   * one elsewhere, and its numbers from another one here, since the agent would take two limits of
   * the same period for one bucket whose size changes.
   *
   * @param key who sent the request: any text; one that is too long to be a key is asked by its hash
   * @param scope a name of the application or the place in it; may be empty
   * @return a call of cost 1
   */
  public Call call(String key, String scope) {
    return own.map(limit -> Call.of(limit, fitting(scope + "|" + limit + "|" + key)))
        .orElseGet(() -> Call.of(name, fitting(key)));
  }

  private static String fitting(String key) {
    byte[] utf8 = key.getBytes(StandardCharsets.UTF_8);
    boolean fits = utf8.length >= 1 && utf8.length <= MAX_KEY_BYTES;
    boolean isUnicode = new String(utf8, StandardCharsets.UTF_8).equals(key);
    return fits && isUnicode ? key : "sha256:" + sha256(key.getBytes(StandardCharsets.UTF_16BE));
  }

  private static String sha256(byte[] data) {
    try {
      StringBuilder hex = new StringBuilder();
      for (byte octet : MessageDigest.getInstance("SHA-256").digest(data)) {
        hex.append(String.format("%02x", octet));
      }
      return hex.toString();
    } catch (NoSuchAlgorithmException e) {
      throw new IllegalStateException("every Java has SHA-256", e);
    }
  }
}
