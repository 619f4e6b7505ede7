// Tests of the whole contract's examples, as an agent must take them.

package server

import (
	"encoding/json"
	"os"
	"testing"

	"rlsidecar/protocol"
)

type example struct {
	ID, Kind, Reader, Hex string
	MsgID                 *uint32
	Must                  any // an error code, or "close"
}

func examples(t *testing.T) (good, bad []example) {
	data, err := os.ReadFile("../../protocol/testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Good, Bad []example }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Good) < 20 || len(file.Bad) < 20 {
		t.Fatalf("only %d good and %d bad examples", len(file.Good), len(file.Bad))
	}
	return file.Good, file.Bad
}

func TestGoodExamples(t *testing.T) {
	_, path := serve(t, &fake{}, Config{})
	good, _ := examples(t)
	c := dial(t, path)
	for _, e := range good {
		if e.Kind == "response" {
			continue
		}
		c.send(unhex(e.Hex), request(99, "ping"))
		if e.Kind == "request" {
			if r, err := protocol.ParseResponse(c.reply()); err != nil || r.ID != *e.MsgID {
				t.Errorf("%s: %+v, %v", e.ID, r, err)
			}
		}
		if got := show(c.reply()); got != "[1 99 <nil> pong]" {
			t.Fatalf("%s: then got %s", e.ID, got)
		}
	}
}

func TestBadExamples(t *testing.T) {
	_, path := serve(t, &fake{}, Config{})
	_, bad := examples(t)
	for _, e := range bad {
		if e.Reader != "agent" {
			continue
		}
		t.Run(e.ID, func(t *testing.T) {
			c := dial(t, path)
			c.send(unhex(e.Hex))
			code, usable := e.Must.(float64)
			if !usable {
				code = float64(protocol.InvalidRequest)
			}
			if e.MsgID != nil {
				r, err := protocol.ParseResponse(c.reply())
				if err != nil || r.ID != *e.MsgID || r.Err == nil || r.Err.Code != protocol.Code(code) {
					t.Errorf("got %+v, %v: want error %v", r, err, code)
				}
			}
			if !usable {
				c.wantClosed()
				return
			}
			c.send(request(99, "ping"))
			c.reply()
		})
	}
}
