// The examples of the documentation: each must load, without a warning, as it stands
// there. An example of a list file names itself in its first line, "# lists/a.txt".

package policy

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestExamplesOfTheDocumentation(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		lists := listExamples(string(text))
		for i, example := range fenced(string(text), "yaml") {
			name := fmt.Sprintf("%s, example %d", filepath.Base(page), i+1)
			t.Run(name, func(t *testing.T) { checkExample(t, name, example, lists) })
			found++
		}
	}
	if found < 10 {
		t.Errorf("%d examples: the test does not find them", found)
	}
}

func checkExample(t *testing.T, name, example string, lists map[string]string) {
	cfg, err := parseWith(name, []byte(example), newShelf(name, func(path string) ([]byte, error) {
		if list, is := lists[path]; is {
			return []byte(list), nil
		}
		return nil, fs.ErrNotExist
	}))
	switch {
	case err != nil:
		t.Fatal(err)
	case len(cfg.Warnings) > 0:
		t.Error(cfg.Warnings)
	}
	for _, l := range cfg.lists {
		if l.entries == 0 {
			t.Errorf("%s has no entries", l.path)
		}
	}
}

// fenced returns the blocks of a page that are in this language.
func fenced(page, language string) (blocks []string) {
	for _, part := range strings.Split(page, "\n```"+language+"\n")[1:] {
		block, _, _ := strings.Cut(part, "\n```")
		blocks = append(blocks, block+"\n")
	}
	return blocks
}

func listExamples(page string) map[string]string {
	lists := map[string]string{}
	for _, block := range fenced(page, "text") {
		first, _, _ := strings.Cut(block, "\n")
		lists[strings.TrimPrefix(first, "# ")] = block
	}
	return lists
}
