// Command picture draws docs/pictures: what each algorithm lets through of the same
// calls. scripts/pictures runs it; a test fails when the drawings are not up to date.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: picture FOLDER: draws a file for each algorithm into it")
		os.Exit(2)
	}
	for _, p := range pictures() {
		if err := os.WriteFile(filepath.Join(os.Args[1], p.file()), p.draw(), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
