// How a picture is drawn: a lane of calls, one of departures where calls wait, and
// the level below them.

package main

import (
	"bytes"
	"fmt"
	"math"
	"strconv"

	"rlsidecar/internal/bucket"
)

// picture is one algorithm's.
type picture struct {
	algorithm bucket.Algorithm
	limit     string  // what is above the picture
	level     string  // what the curve shows
	top       float64 // its highest value
	windows   bool    // lines where windows end
	waits     bool    // calls wait, so that when they leave is another lane
	scene     func() scene
}

func pictures() []picture {
	return []picture{
		{algorithm: bucket.TokenBucket, limit: "10 per 10 s", level: "permits", top: count, scene: of(bucket.TokenBucket, count)},
		{algorithm: bucket.LeakyBucket, limit: "10 per 10 s, burst 5, calls that may wait", level: "in the bucket", top: places, waits: true, scene: of(bucket.LeakyBucket, places)},
		{algorithm: bucket.FixedWindow, limit: "10 per 10 s", level: "permits", top: count, windows: true, scene: of(bucket.FixedWindow, count)},
		{algorithm: bucket.SlidingWindow, limit: "10 per 10 s, 10 buckets", level: "permits", top: count, scene: of(bucket.SlidingWindow, count)},
		{algorithm: bucket.SlidingLog, limit: "10 per 10 s", level: "permits", top: count, scene: of(bucket.SlidingLog, count)},
		{algorithm: bucket.Concurrency, limit: "5 at once, each call takes 3 s", level: "held", top: places, scene: func() scene { return newHolding() }},
	}
}

func of(a bucket.Algorithm, burst int64) func() scene {
	return func() scene { return newMetered(a, burst) }
}

func (p *picture) file() string { return p.algorithm.String() + ".svg" }

// The picture's measures, in its own units.
const (
	width, height        = 720, 240
	left, right          = 116, 700
	callsAt, leaveAt     = 62, 92
	levelTop, levelFloor = 118, 206
)

// The colours, for a light and for a dark page. The background is drawn: some
// pages are dark when the system is not.
const style = `<style>
.bg{fill:#fff}text{font:12px system-ui,sans-serif;fill:#57606a}.mid{text-anchor:middle}.title{font-weight:600;fill:#1f2328}
.axis{stroke:#d0d7de}.edge{stroke:#8c959f;stroke-dasharray:2 3}
.yes{stroke:#1a7f37;stroke-width:1.6}.no{stroke:#cf222e;stroke-width:1.6}
.area{fill:#0969da;fill-opacity:.14}.line{stroke:#0969da;stroke-width:1.5;fill:none}
@media (prefers-color-scheme:dark){
.bg{fill:#0d1117}text{fill:#9198a1}.title{fill:#f0f6fc}.axis{stroke:#3d444d}.edge{stroke:#656c76}
.yes{stroke:#3fb950}.no{stroke:#f85149}.area{fill:#4493f8;fill-opacity:.2}.line{stroke:#4493f8}}
</style>
`

// sheet is an SVG in the making.
type sheet struct{ bytes.Buffer }

func (p *picture) draw() []byte {
	answers, levels := play(p.scene())
	var s sheet
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img">`+"\n", width, height)
	fmt.Fprintf(&s, "<title>%s: calls let through over time</title>\n%s", p.algorithm, style)
	fmt.Fprintf(&s, `<rect class="bg" width="%d" height="%d" rx="6"/>`+"\n", width, height)
	s.text("title", 12, 22, p.algorithm.String())
	s.text("", left+12, 22, p.limit)
	s.text("", right-166, 22, tally(answers))
	s.axes(p)
	s.lanes(p, answers)
	s.curve(levels, p.top)
	s.WriteString("</svg>\n")
	return s.Bytes()
}

func tally(answers []answer) string {
	n := 0
	for _, a := range answers {
		if a.allowed {
			n++
		}
	}
	return fmt.Sprintf("%d of %d calls let through", n, len(answers))
}

func (s *sheet) axes(p *picture) {
	for at := int64(0); at <= length; at += 4 * second {
		s.text("mid", x(at), height-14, strconv.FormatInt(at/second, 10))
	}
	s.text("", 12, height-14, "seconds")
	for at := period; p.windows && at <= length; at += period {
		s.line("edge", x(at), callsAt-24, x(at), levelFloor)
	}
	s.text("", 12, levelTop+9, p.level)
	s.text("", left-20, levelTop+9, strconv.Itoa(int(p.top)))
	s.text("", left-13, levelFloor, "0")
	s.line("edge", left, levelTop, right, levelTop)
	s.line("axis", left, levelFloor, right, levelFloor)
}

func (s *sheet) lanes(p *picture, answers []answer) {
	var yes, no, leave []int64
	for _, a := range answers {
		if !a.allowed {
			no = append(no, a.at)
			continue
		}
		yes, leave = append(yes, a.at), append(leave, a.left)
	}
	s.text("", 12, callsAt-10, "let through")
	s.text("", 12, callsAt+14, "denied")
	s.line("axis", left, callsAt, right, callsAt)
	s.ticks("yes", yes, callsAt, -20)
	s.ticks("no", no, callsAt, 14)
	if p.waits {
		s.text("", 12, leaveAt+12, "go on")
		s.ticks("yes", leave, leaveAt+14, -14)
	}
}

// ticks draws a line of a height at each time.
func (s *sheet) ticks(class string, at []int64, y, high float64) {
	fmt.Fprintf(s, `<path class="%s" d="`, class)
	for _, t := range at {
		fmt.Fprintf(s, "M%s %sv%s", number(x(t)), number(y), number(high))
	}
	s.WriteString(`"/>` + "\n")
}

// curve draws levels, leaving out points on a straight line.
func (s *sheet) curve(levels []point, top float64) {
	y := func(p point) float64 { return levelFloor - p.level/top*(levelFloor-levelTop) }
	var path bytes.Buffer
	for i, p := range levels {
		if i > 0 && i < len(levels)-1 && straight(levels[i-1], p, levels[i+1]) {
			continue
		}
		fmt.Fprintf(&path, "L%s %s", number(x(p.at)), number(y(p)))
	}
	line := path.String()[1:]
	fmt.Fprintf(s, `<path class="area" d="M%s %dL%sV%dZ"/>`+"\n", number(x(levels[0].at)), levelFloor, line, levelFloor)
	fmt.Fprintf(s, `<path class="line" d="M%s"/>`+"\n", line)
}

// straight reports whether b is where the line from a to c passes.
func straight(a, b, c point) bool {
	if a.at == b.at || b.at == c.at {
		return a.at == b.at && a.level == b.level
	}
	d := (b.level-a.level)*float64(c.at-b.at) - (c.level-b.level)*float64(b.at-a.at)
	return d < 1 && d > -1
}

func (s *sheet) text(class string, x, y float64, text string) {
	if class != "" {
		class = ` class="` + class + `"`
	}
	fmt.Fprintf(s, `<text%s x="%s" y="%s">%s</text>`+"\n", class, number(x), number(y), text)
}

func (s *sheet) line(class string, x1, y1, x2, y2 float64) {
	fmt.Fprintf(s, `<path class="%s" d="M%s %sL%s %s"/>`+"\n", class, number(x1), number(y1), number(x2), number(y2))
}

// x returns where a time is.
func x(at int64) float64 { return left + float64(at)/float64(length)*(right-left) }

func number(v float64) string {
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
}
