/** Limits for servlet containers. Start at {@link rlsidecar.servlet.RateLimitFilter}. */
package rlsidecar.servlet;
