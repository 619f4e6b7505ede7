<?php

declare(strict_types=1);

namespace RlSidecar;

/**
 * What a call that gets no decision from the agent does.
 */
enum OnUnavailable: string
{
    case Allow = 'allow';
    case Deny = 'deny';
    /** Keep the limit here, in this process or, with APCu, among the processes of this pool. */
    case Local = 'local';
    case Raise = 'raise';
}
