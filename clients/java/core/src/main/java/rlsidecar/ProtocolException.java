package rlsidecar;

/** Client and agent do not understand each other; the connection was closed. */
public final class ProtocolException extends UnavailableException {
  private static final long serialVersionUID = 1;

  ProtocolException(String message) {
    super(message);
  }
}
