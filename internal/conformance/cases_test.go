// The cases: what cases.json and the golden messages say, and how an answer is
// compared with what was wanted.

package conformance

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
)

type caseFile struct {
	Replies  map[string]string
	Failures []failure
	Cases    []testCase
}

// failure is a way to get no decision, tried with every call in every mode.
type failure struct {
	ID, About, Socket string
	Answers           []answer
	TimeoutMS         int      `json:"timeout_ms"` // of the client
	Waits             bool     // no call may end before the budget
	Always            bool     // the caller's mistake: raised in every mode
	Error             []string // what may be raised
	MessageHas        string   `json:"message_has"`
}

// testCase is a dialogue with a driver, against an agent with a script.
type testCase struct {
	ID, About, Socket string
	Client            map[string]any // how client "a" is opened, over the defaults
	Answers           []answer
	Cycle             bool
	Steps             []step
	Seen              seen
}

// seen is what the agent must have seen in the end. Nil: any number.
type seen struct {
	Connections, Requests *int
	FirstMsgIDs           *int `json:"first_msgids"` // different ones, at least
	Repeats               int  // requests that may be asked twice, by their key
}

type step struct {
	Ask          map[string]any
	Want         any // an object, or a list of alternatives
	Saw          map[string]any
	AtLeastMS    int    `json:"at_least_ms"`
	AtMostMS     int    `json:"at_most_ms"`
	TookAtMostMS int    `json:"took_at_most_ms"` // from the driver's question to its answer
	EventuallyMS int    `json:"eventually_ms"`   // asked again for so long, until the answer is the one wanted
	MessageHas   string `json:"message_has"`
	Save, Near   string

	Repeat int
	Steps  []step

	Agent   string
	AfterMS int `json:"after_ms"` // in the background, so much later

	ExpectConnections *int `json:"expect_connections"`
}

// action is part of an answer: bytes, an end or a pause.
type action struct {
	Send       string
	EveryMS    *int `json:"every_ms"`  // one byte at a time, with this pause after each
	FreezeMS   int  `json:"freeze_ms"` // sent while the client's process is stopped for so long
	WaitMS     int  `json:"wait_ms"`
	WaitUpToMS int  `json:"wait_up_to_ms"`
	OneIn      int  `json:"one_in"` // only one answer in so many waits
}

// UnmarshalJSON reads a plain string as what is to be sent.
func (a *action) UnmarshalJSON(text []byte) error {
	if text[0] == '"' {
		return json.Unmarshal(text, &a.Send)
	}
	type plain action
	return strict(text, (*plain)(a))
}

func strict(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

func load(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = strict(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// loadCases returns the cases of the file and those that the golden messages make.
func loadCases(t *testing.T) *caseFile {
	t.Helper()
	var file caseFile
	load(t, "cases.json", &file)
	var g golden
	load(t, "../../protocol/testdata/golden.json", &g)
	g.addTo(&file)
	return &file
}

type golden struct {
	Format int
	Good   []struct {
		ID, Kind, Hex, Note, Method, As string
		Canonical                       bool
		MsgID                           uint32
		Params                          []any
		Result                          any
		Error                           []any
	}
	Bad []struct {
		ID, Reader, Why, Hex string
		Must                 any
		MsgID                *uint32
	}
}

// addTo makes a reply "golden:ID" of every golden message to a client, a case of
// every decision, and a failure of every message that a client must refuse.
func (g *golden) addTo(file *caseFile) {
	for _, m := range g.Good {
		if m.Kind != "response" {
			continue
		}
		file.Replies["golden:"+m.ID] = withID(m.Hex)
		if steps := readBack(m.As, m.Result); steps != nil {
			file.Cases = append(file.Cases, testCase{
				ID: "C-01-golden-" + m.ID, About: m.Note, Answers: []answer{{{Send: "golden:" + m.ID}}}, Steps: steps,
			})
		}
	}
	for _, m := range g.Bad {
		if m.Reader != "client" {
			continue
		}
		file.Failures = append(file.Failures, failure{
			ID: "golden-" + m.ID, About: m.Why, TimeoutMS: 60,
			Answers: []answer{{{Send: withID(m.Hex)}}}, Error: []string{"protocol", "unavailable", "timeout"},
		})
	}
}

// withID puts the msgid of the request where a golden message has its own.
func withID(hex string) string {
	head, rest := hex[:4], hex[4:]
	for _, id := range []string{"07", "ce7fffffff"} {
		if strings.HasPrefix(rest, id) && head[0] == '9' {
			return head + "{id}" + strings.TrimPrefix(rest, id)
		}
	}
	return hex
}

// readBack asks for a golden decision and wants what it means.
func readBack(as string, result any) []step {
	switch as {
	case "decision":
		return []step{{Ask: map[string]any{"do": "acquire"}, Want: meaning(result.([]any))}}
	case "all":
		items := result.([]any)
		var decisions []any
		for _, d := range items[1].([]any) {
			decisions = append(decisions, meaning(d.([]any)))
		}
		return []step{{Ask: map[string]any{"do": "acquire_all"}, Want: map[string]any{"allowed": items[0], "decisions": decisions}}}
	}
	return nil
}

func meaning(d []any) map[string]any {
	want := map[string]any{
		"allowed": d[0], "limit": d[1], "remaining": d[2], "reset_after_ms": d[3], "retry_after_ms": d[4], "source": d[5],
		"degraded": d[5] == 4.0, "shadow": d[6] == 1.0, "permit": nil,
	}
	if len(d) > 7 {
		want["permit"] = d[7]
	}
	return want
}

// matches tells whether got has all of want: an object the fields of the wanted
// one, a list items that match, a value the same value. A list of values stands for
// any of them, "*" for anything but null.
func matches(want, got any) bool {
	switch want := want.(type) {
	case map[string]any:
		fields, ok := got.(map[string]any)
		for name, value := range want {
			ok = ok && matches(value, fields[name])
		}
		return ok
	case []any:
		if items, ok := got.([]any); ok {
			return matchesAll(want, items)
		}
		for _, one := range want {
			if matches(one, got) {
				return true
			}
		}
		return false
	case string:
		return want == "*" && got != nil || want == got
	}
	return reflect.DeepEqual(want, got)
}

func matchesAll(want, got []any) bool {
	for i := range want {
		if i >= len(got) || !matches(want[i], got[i]) {
			return false
		}
	}
	return len(want) == len(got)
}
