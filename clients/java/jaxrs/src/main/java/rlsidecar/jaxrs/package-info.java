/** Limits for Jakarta REST. Start at {@link rlsidecar.jaxrs.RateLimitFeature}. */
package rlsidecar.jaxrs;
