package meter

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"rlsidecar/internal/bucket"
)

// slowExcess is SpansExcess interval by interval.
func slowExcess(l *Level, uses []Span) (most float64) {
	for _, a := range uses {
		for _, b := range uses {
			inside := 0.0
			for _, u := range uses {
				if u.From >= a.From && u.To <= b.To {
					inside++
				}
			}
			if b.To >= a.From {
				most = max(most, inside-l.Capacity-l.Rate*float64(b.To-a.From))
			}
		}
	}
	return most
}

func spansRule(t *testing.T) *bucket.Rule {
	rule, err := bucket.NewRule(bucket.Limit{Count: 1000, Period: time.Second, Burst: 5})
	if err != nil {
		t.Fatal(err)
	}
	return &rule
}

func TestSpansExcessIsThatOfTheWorstInterval(t *testing.T) {
	rule, rng := spansRule(t), rand.New(rand.NewPCG(1, 2))
	for range 300 {
		uses := make([]Span, rng.IntN(40))
		for i := range uses {
			from := rng.Int64N(30_000)
			uses[i] = Span{from, from + rng.Int64N(1+rng.Int64N(8000))}
		}
		got, want := SpansExcess(rule, 0, uses), slowExcess(newLevel(rule, 0), uses)
		if math.Abs(got-want) > 1e-9 {
			t.Fatalf("excess %g, want %g, of %v", got, want, uses)
		}
	}
}

// Spans that are moments are what Level measures.
func TestSpansThatAreMoments(t *testing.T) {
	rule, rng := spansRule(t), rand.New(rand.NewPCG(3, 4))
	level, at, uses := newLevel(rule, 0), int64(0), []Span(nil)
	for range 5000 {
		at += rng.Int64N(1900)
		level.Use(at, 1)
		uses = append(uses, Span{at, at})
	}
	if got, want := SpansExcess(rule, 0, uses), level.Excess(); want == 0 || math.Abs(got-want) > 1e-6 {
		t.Errorf("excess %g, want %g and more than 0", got, want)
	}
}
