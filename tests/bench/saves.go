package main

import (
	"os"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// Saves is how often the engine saved the state of a stack, and how much it wrote for that.
type Saves struct {
	Count int   `json:"count"`
	Bytes int64 `json:"bytes"`
}

// saves counts how often a file is replaced: the backend writes the whole state to a new file and renames it.
type saves struct {
	watcher *fsnotify.Watcher
	path    string
	done    sync.WaitGroup

	mu   sync.Mutex
	seen Saves
}

// stateFile is where a backend in dir keeps the state of a stack of a project.
func stateFile(dir, project, stack string) string {
	return filepath.Join(dir, "state", ".pulumi", "stacks", project, stack+".json")
}

// countSaves counts how often the file at path is replaced, until it is closed. Its directory is there.
func countSaves(path string) (*saves, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}

	s := &saves{watcher: watcher, path: path}

	s.done.Go(func() {
		for event := range watcher.Events {
			if event.Name == path && event.Has(fsnotify.Create) {
				s.add()
			}
		}
	})

	return s, watcher.Add(filepath.Dir(path))
}

func (s *saves) add() {
	info, err := os.Stat(s.path)
	if err != nil {
		return // the stack is gone
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	s.seen.Count++
	s.seen.Bytes += info.Size()
}

// take returns what was counted since the last time.
func (s *saves) take() Saves {
	s.mu.Lock()
	defer s.mu.Unlock()

	taken := s.seen
	s.seen = Saves{}

	return taken
}

// size of the file now.
func (s *saves) size() (int64, error) {
	info, err := os.Stat(s.path)
	if err != nil {
		return 0, err
	}

	return info.Size(), nil
}

func (s *saves) close() {
	_ = s.watcher.Close() // it only ever read
	s.done.Wait()
}
