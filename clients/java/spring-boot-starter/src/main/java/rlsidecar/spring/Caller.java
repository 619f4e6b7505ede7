package rlsidecar.spring;

import rlsidecar.http.Outcome;

/** Who sent the request under way. A bean of this type takes the place of the one for servlets. */
public interface Caller {
  /**
   * Tells who sent the request, for limits without a key.
   *
   * @return any text
   * @throws IllegalStateException when there is no request
   */
  String key();

  /**
   * Tells the sender about the limits.
   *
   * @param outcome what was decided for the request
   */
  void tell(Outcome outcome);
}
