package rlsidecar;

/**
 * No decision was had: the agent could not be asked, or could not decide.
 *
 * <p>Most of these never leave the client, so the stack is recorded only when one does.
 */
public class UnavailableException extends RlSidecarException {
  private static final long serialVersionUID = 1;

  UnavailableException(String message) {
    super(message);
  }

  @Override
  @SuppressWarnings("UnsynchronizedOverridesSynchronized")
  public final Throwable fillInStackTrace() {
    return this;
  }

  /** This exception with the stack of the thread that throws it. */
  final UnavailableException withStack() {
    super.fillInStackTrace();
    return this;
  }
}
