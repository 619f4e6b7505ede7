// Benchmarks of the socket against a bare echo server, the cost nobody can go
// below with a goroutine per connection.

package server

import (
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

func BenchmarkSocket(b *testing.B) {
	g1 := unhex("940007a76163717569726593a3617069a7757365723a343201")
	for _, tt := range []struct {
		name         string
		conns, depth int
	}{{"64", 64, 1}, {"64x16", 64, 16}, {"1", 1, 1}} {
		b.Run(tt.name+"/echo", func(b *testing.B) {
			exchange(b, echo(b), tt.conns, tt.depth, g1, len(g1))
		})
		b.Run(tt.name+"/agent", func(b *testing.B) {
			_, path := serve(b, &fake{}, Config{})
			exchange(b, path, tt.conns, tt.depth, g1, 14)
		})
	}
}

// echo answers every chunk with itself.
func echo(b *testing.B) string {
	path := filepath.Join(b.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ln.Close() })
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer nc.Close()
				buf := make([]byte, readBuffer)
				for {
					n, err := nc.Read(buf)
					if err != nil {
						return
					}
					nc.Write(buf[:n])
				}
			}()
		}
	}()
	return path
}

// exchange has each connection send depth requests at once and wait for their
// replies of size bytes each, b.N requests over all.
func exchange(b *testing.B, path string, conns, depth int, frame []byte, size int) {
	var out []byte
	for range depth {
		out = append(out, frame...)
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	for range conns {
		c, err := net.Dial("unix", path)
		if err != nil {
			b.Fatal(err)
		}
		wg.Go(func() {
			defer c.Close()
			buf := make([]byte, depth*size)
			for left.Add(-int64(depth)) >= 0 {
				c.Write(out)
				for got := 0; got < len(buf); {
					n, err := c.Read(buf[got:])
					if err != nil {
						b.Error(err)
						return
					}
					got += n
				}
			}
		})
	}
	wg.Wait()
}
