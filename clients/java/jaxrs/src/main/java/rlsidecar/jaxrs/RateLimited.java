package rlsidecar.jaxrs;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * Limits a resource method, or all methods of a resource class; on a method it takes the place of the
 * class's. Works once a {@link RateLimitFeature} is registered.
 */
@Documented
@Retention(RetentionPolicy.RUNTIME)
@Target({ElementType.TYPE, ElementType.METHOD})
public @interface RateLimited {
  /**
   * The limits, asked all at once.
   *
   * @return names of policies, or limits like {@code "10/minute"}
   */
  String[] value();
}
