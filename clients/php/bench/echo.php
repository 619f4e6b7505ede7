<?php

/**
 * The other end of the ping-pong: answers every read with the same bytes, one connection after another.
 *
 *     php echo.php SOCKET HEX
 */

declare(strict_types=1);

$reply = (string) hex2bin($argv[2]);
$listener = stream_socket_server("unix://$argv[1]");
while (true) {
    $stream = stream_socket_accept($listener, -1);
    while (($read = fread($stream, 8192)) !== '' && $read !== false) {
        fwrite($stream, $reply);
    }
    fclose($stream);
}
