package impact

import (
	"encoding/json"
	"fmt"
	"strings"
)

// messagePrefix begins a message that holds a row. The engine hands nothing but messages from a program to who runs a
// preview of it.
const messagePrefix = "talos-proxmox row "

// Message is the row as a message, which ParseMessage reads.
func (r NodeImpact) Message() (string, error) {
	text, err := json.Marshal(r)

	return messagePrefix + string(text), err
}

// ParseMessage reads the row of a message; found is false for a message that holds none. What the engine adds before
// and after the row, such as colours, is ignored.
func ParseMessage(message string) (row NodeImpact, found bool, err error) {
	_, text, found := strings.Cut(message, messagePrefix)
	if !found {
		return row, false, nil
	}

	if err := json.NewDecoder(strings.NewReader(text)).Decode(&row); err != nil {
		return row, true, fmt.Errorf("what the program says of a node cannot be read: %w", err)
	}

	return row, true, nil
}
