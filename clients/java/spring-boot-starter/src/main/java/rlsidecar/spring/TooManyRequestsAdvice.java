package rlsidecar.spring;

import org.springframework.core.Ordered;
import org.springframework.core.annotation.Order;
import org.springframework.http.HttpStatus;
import org.springframework.http.ProblemDetail;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.ExceptionHandler;
import org.springframework.web.bind.annotation.RestControllerAdvice;
import rlsidecar.RateLimitExceededException;

/** Answers requests that are denied; the headers about limits are set already. */
@RestControllerAdvice
@Order(Ordered.LOWEST_PRECEDENCE)
public class TooManyRequestsAdvice {
  TooManyRequestsAdvice() {}

  /**
   * The answer to a denied request.
   *
   * @param denied the denial
   * @return status 429, with a problem detail
   */
  @ExceptionHandler(RateLimitExceededException.class)
  public ResponseEntity<ProblemDetail> tooManyRequests(RateLimitExceededException denied) {
    return ResponseEntity.status(HttpStatus.TOO_MANY_REQUESTS)
        .body(ProblemDetail.forStatusAndDetail(HttpStatus.TOO_MANY_REQUESTS, denied.getMessage()));
  }
}
