// Where the agent is.

package rlsidecar

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

const (
	addressVariable = "RLSIDECAR_ADDRESS"
	defaultAddress  = "unix:///run/rlsidecar/rlsidecar.sock"
	maxPath         = 107 // bytes of a socket's path in Linux
)

// SocketPath returns the path of the socket that address means: the address itself,
// else RLSIDECAR_ADDRESS, else the default. It fails for another scheme than unix
// and for a path over 107 bytes.
func SocketPath(address string) (string, error) {
	if address == "" {
		address = os.Getenv(addressVariable)
	}
	if address == "" {
		address = defaultAddress
	}
	path := address
	if scheme, rest, ok := strings.Cut(address, "://"); ok {
		if scheme != "unix" || !strings.HasPrefix(rest, "/") {
			return "", fmt.Errorf("rlsidecar: address %q: allowed are unix:///path and a plain path", address)
		}
		path = rest
	}
	if len(path) > maxPath {
		return "", fmt.Errorf("rlsidecar: socket path of %d bytes, %q: allowed are up to %d bytes", len(path), path, maxPath)
	}
	if strings.ContainsRune(path, 0) {
		return "", errors.New("rlsidecar: socket path with a zero byte: allowed is any other")
	}
	return path, nil
}
