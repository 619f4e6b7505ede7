// The pictures in docs are what the code draws, every algorithm has one, and each
// keeps its limit.

package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"rlsidecar/internal/bucket"
)

const folder = "../../docs/pictures"

func TestPicturesAreUpToDate(t *testing.T) {
	for _, p := range pictures() {
		drawn, err := os.ReadFile(filepath.Join(folder, p.file()))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(drawn, p.draw()) {
			t.Errorf("%s is not what the algorithm does: run scripts/pictures", p.file())
		}
		if len(drawn) > 20_000 {
			t.Errorf("%s has %d bytes: want at most 20,000", p.file(), len(drawn))
		}
		for d := xml.NewDecoder(bytes.NewReader(drawn)); err == nil; {
			_, err = d.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", p.file(), err)
		}
	}
	names, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil || len(names) != len(bucket.Algorithms()) || len(names) != len(pictures()) {
		t.Errorf("%d files for %d algorithms (%v)", len(names), len(bucket.Algorithms()), err)
	}
}

// What the reference says of each algorithm must be so in its picture.
func TestPicturesKeepTheBounds(t *testing.T) {
	for _, tt := range []struct {
		algorithm bucket.Algorithm
		window    int64 // µs
		most      int   // let through in any window of that length
		least     int   // let through in the whole picture
	}{
		{bucket.TokenBucket, period, 2 * count, 30},
		{bucket.LeakyBucket, period - count, count, 20}, // each leaves at a whole µs
		{bucket.FixedWindow, period, 2 * count, 30},
		{bucket.SlidingWindow, period - period/bucket.DefaultParts, count, 25},
		{bucket.SlidingLog, period, count, 25},
		{bucket.Concurrency, hold, places, 25},
	} {
		p := pictures()[tt.algorithm]
		answers, _ := play(p.scene())
		var left []int64
		for _, a := range answers {
			if a.allowed {
				left = append(left, a.left)
			}
		}
		if most := densest(left, tt.window); p.algorithm != tt.algorithm || most > tt.most || len(left) < tt.least {
			t.Errorf("%s: %d let through, %d of them in %d µs; want at least %d, at most %d", p.algorithm, len(left), most, tt.window, tt.least, tt.most)
		}
	}
}

// densest returns the most of these times, which are in order, in one window.
func densest(at []int64, window int64) (most int) {
	first := 0
	for last := range at {
		for at[last]-at[first] >= window {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}
