// Command web is a small web application whose requests are limited by the agent on
// its host:
//
//	go run ./clients/go/examples/web -listen 127.0.0.1:8080 -policy api
//	curl -i -H 'X-Api-Key: me' http://127.0.0.1:8080/
//
// A key is counted on all hosts together, whichever language the other applications
// are written in. Where the agent is says RLSIDECAR_ADDRESS.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"

	rlsidecar "rlsidecar/clients/go"
	"rlsidecar/clients/go/httplimit"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "`address` to serve HTTP on")
	policy := flag.String("policy", "api", "`policy` of the agent, or a limit such as 10/minute")
	flag.Parse()
	if err := serve(*listen, *policy); err != nil {
		log.Fatal(err)
	}
}

func serve(listen, policy string) error {
	limit, err := rlsidecar.ParseLimit(policy)
	if err != nil {
		return err
	}
	client, err := rlsidecar.New("")
	if err != nil {
		return err
	}
	defer client.Close()
	limited := httplimit.Limit(client, limit, httplimit.Key(caller))
	return http.ListenAndServe(listen, limited(http.HandlerFunc(hello)))
}

// caller is who a request is counted for: the key it shows, else where it comes from.
func caller(r *http.Request) string {
	if key := r.Header.Get("X-Api-Key"); key != "" {
		return key
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

func hello(w http.ResponseWriter, r *http.Request) {
	d, _ := httplimit.Decision(r)
	fmt.Fprintf(w, "hello from Go, %d of %d left\n", d.Remaining, d.Limit)
}
