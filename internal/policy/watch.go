// Events of the folders that files live in.

package policy

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/fsnotify/fsnotify"
)

// watch reports that something happened near a file. It watches folders, not
// files: editors and deployments replace files, and a watch stays with the old one.
// Behind a symbolic link it watches the folder of each link and of the target.
// It promises nothing: without it the poll of the Reloader finds every change.
type watch struct {
	events  *fsnotify.Watcher // nil: the system gives no events
	folders []string
	log     *slog.Logger
}

func newWatch(log *slog.Logger, paths []string) *watch {
	w := &watch{log: log}
	events, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("no file events: changes are found by polling", "err", err)
		return w
	}
	w.events = events
	w.follow(paths)
	return w
}

// changed returns a channel that receives when something happened.
func (w *watch) changed() <-chan fsnotify.Event {
	if w.events == nil {
		return nil
	}
	return w.events.Events
}

// failed returns a channel that receives when events were lost.
func (w *watch) failed() <-chan error {
	if w.events == nil {
		return nil
	}
	return w.events.Errors
}

// follow watches the folders where the files are now, and no others.
func (w *watch) follow(paths []string) {
	if w.events == nil {
		return
	}
	var folders []string
	for _, path := range paths {
		folders = append(folders, foldersOf(path)...)
	}
	slices.Sort(folders)
	folders = slices.Compact(folders)
	for _, f := range w.folders {
		if !slices.Contains(folders, f) {
			_ = w.events.Remove(f) // gone already, mostly
		}
	}
	for _, f := range folders {
		_ = w.events.Add(f) // again each time: the folder of that name may be a new one
	}
	w.folders = folders
}

func (w *watch) close() {
	if w.events != nil {
		_ = w.events.Close()
	}
}

// foldersOf returns the real folders of path and of each link it goes through.
func foldersOf(path string) []string {
	const mostLinks = 16
	var folders []string
	for range mostLinks {
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			break
		}
		if !slices.Contains(folders, dir) {
			folders = append(folders, dir)
		}
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return folders
}
