package rlsidecar;

/** The thread was interrupted while the agent held back its answer: no permits came. */
final class GivenUpException extends UnavailableException {
  private static final long serialVersionUID = 1;

  GivenUpException() {
    super("the thread was interrupted while it waited for permits");
  }
}
