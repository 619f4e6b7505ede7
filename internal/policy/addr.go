// Addresses and networks, as entries of lists and as keys.

package policy

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// parseNetwork reads an address or a CIDR network. A bare address is the network
// of that one address, so that it matches however a key spells it.
func parseNetwork(entry string) (p netip.Prefix, is bool, err error) {
	addr, bits, slash := strings.Cut(entry, "/")
	a, ok := parseAddr([]byte(addr))
	switch {
	case strings.Contains(addr, "%"):
		return p, false, nil
	case ok && !slash:
		return netip.PrefixFrom(a, a.BitLen()), true, nil
	case ok:
		return parseCIDR(entry, bits)
	case slash && digits(bits) && dotted(addr):
		return p, false, fmt.Errorf("network %q: write all four numbers, as in 10.0.0.0/8", entry)
	}
	return p, false, nil
}

func parseCIDR(entry, bits string) (netip.Prefix, bool, error) {
	p, err := netip.ParsePrefix(entry)
	if err != nil {
		return p, false, fmt.Errorf("network %q: the prefix length %q must be 0 to 32 for IPv4, 0 to 128 for IPv6", entry, bits)
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return p, false, errors.New("network " + entry + ": write it as an IPv4 network")
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	if p != p.Masked() {
		return p, false, fmt.Errorf("network %q has host bits set: write %q for the network, or %q for the one address", entry, p.Masked(), p.Addr())
	}
	return p, true, nil
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

func dotted(s string) bool { return strings.Contains(s, ".") && strings.Trim(s, "0123456789.") == "" }

// parseAddr reads an IP address as netip.ParseAddr does, without allocating when
// key is none: most keys are not. An IPv4 address in IPv6 form comes back as
// IPv4, and a zone is dropped.
func parseAddr(key []byte) (netip.Addr, bool) {
	if len(key) < 2 || len(key) > 256 {
		return netip.Addr{}, false
	}
	if bytes.IndexByte(key, ':') < 0 {
		b, ok := parse4(key)
		return netip.AddrFrom4(b), ok
	}
	if i := bytes.IndexByte(key, '%'); i >= 0 {
		if i == len(key)-1 {
			return netip.Addr{}, false
		}
		key = key[:i]
	}
	b, ok := parse6(key)
	return netip.AddrFrom16(b).Unmap(), ok
}

func parse4(s []byte) (b [4]byte, ok bool) {
	for i := range b {
		n, v := 0, 0
		for n < len(s) && n < 3 && s[n] >= '0' && s[n] <= '9' {
			v = v*10 + int(s[n]-'0')
			n++
		}
		if n == 0 || v > 255 || n > 1 && s[0] == '0' {
			return b, false
		}
		b[i], s = byte(v), s[n:]
		if i == 3 {
			break
		}
		if len(s) == 0 || s[0] != '.' {
			return b, false
		}
		s = s[1:]
	}
	return b, len(s) == 0
}

// parse6 reads up to eight groups into b; gap remembers where "::" stood, and
// what was read behind it moves to the end.
func parse6(s []byte) (b [16]byte, ok bool) {
	n, gap := 0, -1
	if len(s) >= 2 && s[0] == ':' && s[1] == ':' {
		gap, s = 0, s[2:]
	}
	for len(s) > 0 {
		v, digits := group(s)
		if digits < len(s) && s[digits] == '.' {
			four, ok := parse4(s)
			if !ok || n > 12 || n < 12 && gap < 0 {
				return b, false
			}
			n, s = n+copy(b[n:], four[:]), nil
			break
		}
		if digits == 0 || digits > 4 || n == 16 {
			return b, false
		}
		b[n], b[n+1] = byte(v>>8), byte(v)
		n, s = n+2, s[digits:]
		if len(s) == 0 {
			break
		}
		if s[0] != ':' || len(s) == 1 {
			return b, false
		}
		if s = s[1:]; s[0] == ':' {
			if gap >= 0 {
				return b, false
			}
			gap, s = n, s[1:]
		}
	}
	return spread(b, n, gap)
}

func spread(b [16]byte, n, gap int) (out [16]byte, ok bool) {
	if gap < 0 {
		return b, n == 16
	}
	copy(out[:], b[:gap])
	copy(out[16-(n-gap):], b[gap:n])
	return out, n < 16
}

// group reads hex digits, at most five: one more than a group may have.
func group(s []byte) (v, digits int) {
	for digits < len(s) && digits < 5 {
		d := hexDigit(s[digits])
		if d < 0 {
			break
		}
		v, digits = v<<4|d, digits+1
	}
	return v, digits
}

func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
