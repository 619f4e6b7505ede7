package rlsidecar;

/** The agent did not answer within the call's budget. The call may have counted. */
public final class AgentTimeoutException extends UnavailableException {
  private static final long serialVersionUID = 1;

  AgentTimeoutException(String message) {
    super(message);
  }
}
