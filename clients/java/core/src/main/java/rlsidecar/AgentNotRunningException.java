package rlsidecar;

/** Nobody listens on the agent's socket, or this process may not connect to it. */
public final class AgentNotRunningException extends UnavailableException {
  private static final long serialVersionUID = 1;

  AgentNotRunningException(String message) {
    super(message);
  }
}
