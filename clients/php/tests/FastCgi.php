<?php

declare(strict_types=1);

namespace RlSidecar\Tests;

/**
 * Asks PHP-FPM for a script, as a web server does.
 */
final class FastCgi
{
    private const BEGIN = 1;
    private const END = 3;
    private const PARAMS = 4;
    private const STDIN = 5;
    private const STDOUT = 6;

    public function __construct(private readonly string $socket)
    {
    }

    /**
     * @param array<string, string> $query
     * @param array<string, string> $more  parameters, such as HTTP_X_API_KEY
     *
     * @return array{string, string} headers and body; both empty when the connection ended before them
     */
    public function get(string $script, array $query = [], array $more = []): array
    {
        $stream = stream_socket_client("unix://$this->socket", $error, $text, 5);
        stream_set_timeout($stream, 30);
        $params = self::params($more + [
            'SCRIPT_FILENAME' => $script,
            'SCRIPT_NAME' => '/' . basename($script),
            'REQUEST_URI' => '/' . basename($script),
            'QUERY_STRING' => http_build_query($query),
            'REQUEST_METHOD' => 'GET',
            'SERVER_PROTOCOL' => 'HTTP/1.1',
            'REMOTE_ADDR' => '203.0.113.7',
        ]);
        fwrite($stream, self::record(self::BEGIN, "\0\x01\0\0\0\0\0\0") . self::record(self::PARAMS, $params)
            . self::record(self::PARAMS, '') . self::record(self::STDIN, ''));
        [$headers, $body] = explode("\r\n\r\n", self::output($stream), 2) + ['', ''];
        return [$headers, $body];
    }

    /** @param resource $stream */
    private static function output($stream): string
    {
        $output = '';
        while (strlen($head = (string) stream_get_contents($stream, 8)) === 8) {
            ['type' => $type, 'size' => $size, 'padding' => $padding] = unpack('Cversion/Ctype/nid/nsize/Cpadding', $head);
            $content = $size + $padding === 0 ? '' : (string) stream_get_contents($stream, $size + $padding);
            if ($type === self::END) {
                break;
            }
            $output .= $type === self::STDOUT ? substr($content, 0, $size) : '';
        }
        return $output;
    }

    private static function record(int $type, string $content): string
    {
        return pack('CCnnCC', 1, $type, 1, strlen($content), 0, 0) . $content;
    }

    /** @param array<string, string> $params */
    private static function params(array $params): string
    {
        $bytes = '';
        foreach ($params as $name => $value) {
            $bytes .= pack('NN', strlen($name) | 0x80000000, strlen($value) | 0x80000000) . $name . $value;
        }
        return $bytes;
    }
}
