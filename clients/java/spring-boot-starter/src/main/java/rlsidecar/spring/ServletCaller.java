package rlsidecar.spring;

import jakarta.servlet.http.HttpServletResponse;
import org.springframework.web.context.request.RequestAttributes;
import org.springframework.web.context.request.RequestContextHolder;
import org.springframework.web.context.request.ServletRequestAttributes;
import rlsidecar.http.HeaderStyle;
import rlsidecar.http.Outcome;

/** The remote address of the request that this thread serves. */
final class ServletCaller implements Caller {
  private final HeaderStyle style;

  ServletCaller(HeaderStyle style) {
    this.style = style;
  }

  @Override
  public String key() {
    if (RequestContextHolder.getRequestAttributes() instanceof ServletRequestAttributes attributes) {
      return attributes.getRequest().getRemoteAddr();
    }
    throw new IllegalStateException("@RateLimited needs a key where no web request is under way");
  }

  /** The last outcome of a request is told, as the one of the innermost limit. */
  @Override
  public void tell(Outcome outcome) {
    RequestAttributes current = RequestContextHolder.getRequestAttributes();
    if (current instanceof ServletRequestAttributes attributes && attributes.getResponse() != null) {
      HttpServletResponse response = attributes.getResponse();
      outcome.headers(style).forEach(response::setHeader);
    }
  }
}
