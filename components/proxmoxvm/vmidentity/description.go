package vmidentity

import (
	"fmt"
	"strings"

	"talos-proxmox/components/proxmoxapi"
)

// notesUUID precedes the UUID in the description of a VM.
const notesUUID = "VM UUID "

// Describe adds the UUID that a VM is going to have to its description. A refresh takes the UUID of whatever VM has the
// VMID into the state, and this tells whether the program has made it. Proxmox VE gives a copy of a template the
// description at once, and a UUID of its own until its settings follow: a copy that was cut off in between is
// recognized by it.
func Describe(description, uuid string) string { return description + "\n\n" + notesUUID + uuid }

// Description is what Describe was given.
func Description(text string) string {
	text, _, _ = strings.Cut(text, notesUUID)

	return strings.TrimSpace(text)
}

// Described says that the VM was made by this program with the UUID that it has: its description says so.
func (f Found) Described() bool {
	return f.Config.UUID != "" && strings.EqualFold(original(f), f.Config.UUID)
}

// original is the UUID that the description of a VM states; empty where it states none.
func original(f Found) string { return recordedUUID(f.Config.Settings["description"]) }

func recordedUUID(description string) string {
	_, recorded, _ := strings.Cut(description, notesUUID)
	first, _, _ := strings.Cut(strings.TrimSpace(recorded), "\n")

	return strings.TrimSpace(first)
}

// copied says that a VM is the copy of a template that has not got its settings yet.
func copied(f Found, m Machine, owner []string) bool {
	return f.VM.Stopped && strings.EqualFold(original(f), m.UUID) && f.Bare(f.VM.Name, owner)
}

// Bare says that the VM of a node is the copy of a template without the settings that follow: the UUID and the tags
// come together.
func (f Found) Bare(name string, owner []string) bool {
	tags := strings.FieldsFunc(f.Config.Settings["tags"], func(c rune) bool { return c == ';' || c == ',' || c == ' ' })

	return f.VM.Name == name && original(f) != "" && !f.Described() && !Tagged(tags, owner)
}

// BareReason says why there is a VM without its settings.
const BareReason = "is a copy of a template without its settings, which Proxmox VE, or a proxy in its place, " +
	"accepted but did not apply"

// DeleteBare says what to do about a VM without its settings.
func DeleteBare(v proxmoxapi.VM) string {
	return fmt.Sprintf("nothing was set up on it: delete it ('qm stop %d', 'qm destroy %d --purge' on host %s), then run "+
		"'pulumi up --refresh'", v.ID, v.ID, v.Host)
}
