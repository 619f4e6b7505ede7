package rlsidecar;

/** The operator does not let this application use this policy or method. */
public final class NotPermittedException extends RlSidecarException {
  private static final long serialVersionUID = 1;

  NotPermittedException(String message) {
    super(message);
  }
}
