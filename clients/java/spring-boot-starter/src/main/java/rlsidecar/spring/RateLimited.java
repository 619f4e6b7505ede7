package rlsidecar.spring;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Repeatable;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * Limits the calls of a bean's method, of a controller or any other. May be repeated: all are asked at
 * once, and when one denies, none is charged.
 *
 * <pre>{@code
 * @RateLimited("login")                                  // by the address of the caller
 * @RateLimited(value = "10/minute", key = "#user.id")    // by an argument
 * @RateLimited(value = "api", key = "@accounts.of(#request)", cost = "#items.size()")
 * }</pre>
 *
 * <p>A denied call throws {@code RateLimitExceededException}, which answers a web request with status 429.
 * As with all of Spring's proxies, a call within the bean itself is not seen.
 */
@Documented
@Retention(RetentionPolicy.RUNTIME)
@Target({ElementType.METHOD, ElementType.ANNOTATION_TYPE})
@Repeatable(RateLimited.Several.class)
public @interface RateLimited {
  /**
   * The limit.
   *
   * @return the name of a policy, or a limit like {@code "10/minute"}
   */
  String value();

  /**
   * Whose call it is, as an expression of the arguments and of beans.
   *
   * @return an expression; empty: the remote address of the web request under way
   */
  String key() default "";

  /**
   * What the call takes, as an expression of the arguments and of beans.
   *
   * @return an expression for a number of permits, 1 to 2^53-1
   */
  String cost() default "1";

  /** Holds several. */
  @Documented
  @Retention(RetentionPolicy.RUNTIME)
  @Target({ElementType.METHOD, ElementType.ANNOTATION_TYPE})
  @interface Several {
    /**
     * The limits.
     *
     * @return one or more
     */
    RateLimited[] value();
  }
}
