/**
 * What every web integration does with a request, whatever the framework: which limits, which keys,
 * one question, and the headers that tell the outcome.
 */
package rlsidecar.http;
