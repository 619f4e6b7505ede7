// The scripts, one for each family of algorithms. They share their sections by text,
// not by Lua functions: making a closure for each would take a third of a script's
// time.

package remote

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"strings"

	"rlsidecar/internal/bucket"
)

//go:embed call.lua
var callFrame string

//go:embed ask.lua
var askPart string

//go:embed levels.lua
var levelsPart string

//go:embed windows.lua
var windowsPart string

//go:embed log.lua
var logPart string

//go:embed lease.lua
var leaseFrame string

//go:embed holders.lua
var holdersFrame string

// script is one script, and what distinguishes its keys: buckets of different
// scripts have nothing in common, and a policy may change its algorithm.
type script struct {
	text, sha, suffix string
}

// assemble puts the sections of parts, each headed by "--- name", into the frame in
// place of the lines "--> name", and the frame into that of a call.
func assemble(suffix, frame string, parts ...string) *script {
	sections := map[string]string{}
	for _, part := range parts {
		for _, section := range strings.Split(part, "\n--- ")[1:] {
			name, text, _ := strings.Cut(section, "\n")
			sections[name] = text
		}
	}
	sections["answer"] = expand(frame, sections)
	text := expand(callFrame, sections)
	sum := sha1.Sum([]byte(text))
	return &script{text, hex.EncodeToString(sum[:]), suffix}
}

func expand(frame string, sections map[string]string) string {
	var text strings.Builder
	for line := range strings.Lines(frame) {
		if name, is := strings.CutPrefix(strings.TrimSpace(line), "--> "); is {
			if line, is = sections[name]; !is {
				panic("no section " + name)
			}
		}
		text.WriteString(line)
	}
	return text.String()
}

var (
	levels  = assemble("", leaseFrame, askPart, levelsPart)
	fixed   = &script{levels.text, levels.sha, ":fixed"}
	windows = assemble(":window", leaseFrame, askPart, windowsPart)
	logs    = assemble(":log", leaseFrame, askPart, logPart)
	holders = assemble(":holders", holdersFrame, askPart)
)

func scriptOf(a bucket.Algorithm) *script {
	return [...]*script{
		bucket.TokenBucket: levels, bucket.LeakyBucket: levels, bucket.FixedWindow: fixed,
		bucket.SlidingWindow: windows, bucket.SlidingLog: logs, bucket.Concurrency: holders,
	}[a]
}

// Script returns the text of an algorithm's script.
func Script(a bucket.Algorithm) string { return scriptOf(a).text }

// distinct is the scripts to load.
var distinct = []*script{levels, windows, logs, holders}
