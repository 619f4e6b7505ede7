package rlsidecar;

/** An argument is out of range; the message names it and what is allowed. */
public final class InvalidRequestException extends RlSidecarException {
  private static final long serialVersionUID = 1;

  InvalidRequestException(String message) {
    super(message);
  }
}
