// The scripts, one for each family of algorithms, joined from the parts that they
// share.

package remote

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"

	"rlsidecar/internal/bucket"
)

//go:embed ask.lua
var askPart string

//go:embed levels.lua
var levelsPart string

//go:embed windows.lua
var windowsPart string

//go:embed log.lua
var logPart string

//go:embed lease.lua
var leasePart string

//go:embed holders.lua
var holdersPart string

// script is one script, and what distinguishes its keys: buckets of different
// scripts have nothing in common, and a policy may change its algorithm.
type script struct {
	text, sha, suffix string
}

func join(suffix string, parts ...string) *script {
	s := &script{suffix: suffix}
	for _, p := range parts {
		s.text += p
	}
	sum := sha1.Sum([]byte(s.text))
	s.sha = hex.EncodeToString(sum[:])
	return s
}

var (
	levels  = join("", askPart, levelsPart, leasePart)
	fixed   = &script{levels.text, levels.sha, ":fixed"}
	windows = join(":window", askPart, windowsPart, leasePart)
	logs    = join(":log", askPart, logPart, leasePart)
	holders = join(":holders", askPart, holdersPart)
)

// Script returns the text of an algorithm's script.
func Script(a bucket.Algorithm) string { return scriptOf(a).text }

// distinct is the scripts to load.
var distinct = []*script{levels, windows, logs, holders}

func scriptOf(a bucket.Algorithm) *script {
	return [...]*script{
		bucket.TokenBucket: levels, bucket.LeakyBucket: levels, bucket.FixedWindow: fixed,
		bucket.SlidingWindow: windows, bucket.SlidingLog: logs, bucket.Concurrency: holders,
	}[a]
}
