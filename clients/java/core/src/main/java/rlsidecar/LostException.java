package rlsidecar;

/** The connection ended before a byte of the reply: on one that was used before, ask again. */
final class LostException extends UnavailableException {
  private static final long serialVersionUID = 1;

  LostException(String message) {
    super(message);
  }
}
