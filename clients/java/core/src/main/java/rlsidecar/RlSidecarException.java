package rlsidecar;

/**
 * Whatever goes wrong in a call. {@link UnavailableException} and its subclasses mean that no
 * decision was had; they reach the caller in mode {@link OnUnavailable#RAISE} only. The others are
 * mistakes of the calling code or of its policies and are always thrown.
 */
public abstract class RlSidecarException extends RuntimeException {
  private static final long serialVersionUID = 1;

  RlSidecarException(String message) {
    super(message);
  }
}
