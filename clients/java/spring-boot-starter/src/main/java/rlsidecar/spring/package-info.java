/** Limits for Spring Boot. Start at {@link rlsidecar.spring.RateLimited}. */
package rlsidecar.spring;
