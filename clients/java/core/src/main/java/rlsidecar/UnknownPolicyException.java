package rlsidecar;

/** The agent has no policy of this name. */
public final class UnknownPolicyException extends RlSidecarException {
  private static final long serialVersionUID = 1;

  UnknownPolicyException(String message) {
    super(message);
  }
}
