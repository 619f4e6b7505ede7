/**
 * Asks the rlsidecar agent on this host whether a call may go through. Start at {@link
 * rlsidecar.RlSidecarClient}.
 */
package rlsidecar;
