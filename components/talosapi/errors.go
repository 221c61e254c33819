package talosapi

import (
	"fmt"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"talos-proxmox/components/terminal"
	"talos-proxmox/components/wait"
)

// brief says in few words why a call failed, without characters that a terminal would obey. Decoding a node's
// configuration fails here as it does on the node, and what is quoted of it is cut in either case.
func brief(err error) string {
	if clock, is := wait.Clock(err.Error()); is {
		return clock.Error()
	}

	s, ok := status.FromError(err)
	if !ok {
		return terminal.Plain(keysOnly(err.Error()))
	}

	if s.Code() == codes.Unavailable {
		// The transport's message ends with the reason: "... dial tcp 10.0.0.11:50000: connect: connection refused".
		parts := strings.Split(strings.TrimSuffix(s.Message(), `"`), ": ")

		return terminal.Plain(parts[len(parts)-1])
	}

	return terminal.Plain(keysOnly(s.Message()))
}

// unknownKeys is how Talos begins to quote what it does not know, everything below it included.
const unknownKeys = "unknown keys found during decoding:"

// keysOnly leaves of what Talos quotes the keys that lead to the first value: that may be a password.
func keysOnly(message string) string {
	words, quoted, unknown := strings.Cut(message, unknownKeys)
	if !unknown {
		return words
	}

	var path []string

	for line := range strings.Lines(strings.TrimSpace(quoted)) {
		key, value, isKey := strings.Cut(strings.TrimLeft(line, " -"), ":")
		if !isKey {
			break
		}

		path = append(path, key)

		if strings.TrimSpace(value) != "" {
			break
		}
	}

	return words + unknownKeys + " " + strings.Join(path, ".")
}

// RejectedError is what a node says of a configuration that it refuses. Asking again does not change that.
type RejectedError struct{ Words string }

func (e RejectedError) Error() string { return "it refuses its configuration: " + e.Words }

// notTaken says why a node has not taken a configuration. Only a RejectedError is final.
func notTaken(node string, err error) error {
	switch {
	case err == nil:
		return nil
	case client.StatusCode(err) == codes.InvalidArgument:
		return RejectedError{brief(err)}
	default:
		return fmt.Errorf("%s does not take the configuration: %s", node, brief(err)) // its words are enough
	}
}
