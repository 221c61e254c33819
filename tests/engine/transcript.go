package engine

import (
	"bytes"
	"sync"
)

// Transcript keeps what an operation prints, which comes from several goroutines. The zero value is ready for use.
type Transcript struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (t *Transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.text.Write(p)
}

// String is all of it.
func (t *Transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.text.String()
}

// tail is enough for the diagnostics that the CLI prints last.
const tail = 6000

// Tail is the end of it.
func (t *Transcript) Tail() string {
	text := t.String()

	return text[max(0, len(text)-tail):]
}

// Reset forgets it.
func (t *Transcript) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text.Reset()
}
