// Where the settings come from: the constructor, else the environment, else the
// default.

package rlsidecar

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"rlsidecar/protocol"
)

const (
	addressVariable = "RLSIDECAR_ADDRESS"
	timeoutVariable = "RLSIDECAR_TIMEOUT_MS"
	modeVariable    = "RLSIDECAR_ON_UNAVAILABLE"
	disableVariable = "RLSIDECAR_DISABLE"
	appVariable     = "RLSIDECAR_APP"
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

// DefaultTimeout is how long a call may take, unless WithTimeout or Timeout or the
// environment variable RLSIDECAR_TIMEOUT_MS say otherwise.
const DefaultTimeout = 50 * time.Millisecond

const longestTimeout = time.Hour

// readEnvironment sets what the environment says, before the options are applied.
func (c *Client) readEnvironment() error {
	if name := os.Getenv(appVariable); name != "" {
		c.app = []byte(name)
	}
	if mode := os.Getenv(modeVariable); mode != "" {
		c.mode = OnUnavailable(mode)
	}
	if text := os.Getenv(timeoutVariable); text != "" {
		ms, err := strconv.ParseFloat(text, 64)
		if err != nil || !(ms > 0 && ms <= float64(longestTimeout/time.Millisecond)) {
			return fmt.Errorf("rlsidecar: %s %q: allowed are numbers above 0, to %d", timeoutVariable, text, longestTimeout/time.Millisecond)
		}
		c.timeout = time.Duration(ms * float64(time.Millisecond))
	}
	switch text := strings.ToLower(os.Getenv(disableVariable)); text {
	case "1", "true", "yes", "on":
		c.disabled = true
	case "", "0", "false", "no", "off":
	default:
		return fmt.Errorf("rlsidecar: %s %q: allowed are 1 and 0", disableVariable, text)
	}
	return nil
}

// check refuses settings that cannot be.
func (c *Client) check() error {
	switch {
	case c.app != nil && (len(c.app) < 1 || len(c.app) > protocol.MaxPolicy):
		return fmt.Errorf("rlsidecar: app of %d bytes: allowed are 1 to %d", len(c.app), protocol.MaxPolicy)
	case c.timeout <= 0 || c.timeout > longestTimeout:
		return fmt.Errorf("rlsidecar: timeout %v: allowed are those above 0, to %v", c.timeout, longestTimeout)
	case !slices.Contains(modes, c.mode):
		return fmt.Errorf("rlsidecar: on_unavailable %q: there are %q", c.mode, modes)
	}
	return nil
}
