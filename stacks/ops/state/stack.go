// Package state keeps a stack's state safe: snapshots of it, checks before it is changed, and the way back to a
// snapshot. It asks the pulumi CLI and nothing else, so it works with every backend, and secrets stay encrypted all the
// way.
package state

import (
	"context"
	"errors"
	"io"
)

// Stack is what is asked of Pulumi about one stack; *Pulumi answers it.
type Stack interface {
	// Name of the stack, without an organization.
	Name() string
	// Project that the stack belongs to.
	Project() string
	// Export returns the state as the backend keeps it, with secrets encrypted.
	Export(ctx context.Context) ([]byte, error)
	// Import makes an exported state the stack's. The backend refuses while the stack is locked.
	Import(ctx context.Context, text []byte) error
	// Free is ErrLocked while another operation runs on the stack.
	Free(ctx context.Context) error
	// Resources reads the state as an operation would, secrets included, and returns the URNs in it.
	Resources(ctx context.Context) ([]string, error)
	// CheckConfig says what is wrong with the stack's configuration.
	CheckConfig(ctx context.Context) error
	// Answers says why Proxmox VE does not answer; nil when it does.
	Answers(ctx context.Context) error
	// Refreshes says that the project has each update and destroy refresh.
	Refreshes() bool
	// Preview shows what an update would change, and counts it by operation.
	Preview(ctx context.Context, out io.Writer) (map[string]int, error)
}

// ErrLocked says that another operation runs on the stack, or was killed and has left its lock.
var ErrLocked = errors.New("another operation runs on the stack")
