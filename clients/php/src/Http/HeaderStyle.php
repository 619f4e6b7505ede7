<?php

declare(strict_types=1);

namespace RlSidecar\Http;

/**
 * How a response says what is left of a limit. Each says Retry-After as well, when the request was
 * denied and can ever be allowed.
 */
enum HeaderStyle
{
    /** X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset. */
    case XRateLimit;
    /** RateLimit-Policy and RateLimit, as draft-ietf-httpapi-ratelimit-headers-10. */
    case Ietf;
    /** Retry-After alone. */
    case Silent;
}
