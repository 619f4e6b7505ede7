<?php

/**
 * The least of a web server, so that the example runs without one: takes GET requests on a port of
 * this host, one after another, and passes them to PHP-FPM. For the example only.
 *
 *     php front.php PORT FPM_SOCKET SCRIPT
 */

declare(strict_types=1);

use RlSidecar\Tests\FastCgi;

require __DIR__ . '/../tests/autoload.php';

/**
 * @param resource $browser
 *
 * @return array<string, string>
 */
function parameters($browser): array
{
    $parameters = ['REMOTE_ADDR' => (string) strtok((string) stream_socket_get_name($browser, true), ':')];
    fgets($browser);
    while (($line = trim((string) fgets($browser))) !== '') {
        [$name, $value] = explode(':', $line, 2) + ['', ''];
        $parameters['HTTP_' . strtoupper(strtr($name, '-', '_'))] = trim($value);
    }
    return $parameters;
}

[, $port, $socket, $script] = $argv;
$fpm = new FastCgi($socket);
$listener = stream_socket_server("tcp://127.0.0.1:$port", $error, $text);
$listener !== false || throw new RuntimeException($text);
while (true) {
    $browser = stream_socket_accept($listener, -1);
    stream_set_timeout($browser, 5);
    [$headers, $body] = $fpm->get($script, [], parameters($browser));
    $status = preg_match('~^Status: (.*)$~m', $headers, $found) === 1 ? trim($found[1]) : '200 OK';
    fwrite($browser, "HTTP/1.1 $status\r\n$headers\r\nConnection: close\r\n\r\n$body");
    fclose($browser);
}
