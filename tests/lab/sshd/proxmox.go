package sshd

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"talos-proxmox/tests/lab/world"
)

// errUnknown is a use of a command that the lab does not know.
var errUnknown = errors.New("unknown command")

// arguments splits what follows a command's name into words and options, "-format raw" or "--format=raw". Options that
// are not allowed are unknown.
func arguments(args []string, allowed func(string) bool) (words []string, options map[string]string, err error) {
	options = map[string]string{}

	for i := 0; i < len(args); i++ {
		name, option := strings.CutPrefix(args[i], "-")
		if !option {
			words = append(words, args[i])

			continue
		}

		name, value, given := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		if !given {
			if i++; i == len(args) {
				return nil, nil, errUnknown
			}

			value = args[i]
		}

		if !allowed(name) {
			return nil, nil, errUnknown
		}

		options[name] = value
	}

	return words, options, nil
}

func none(string) bool { return false }

// pvesm is Proxmox VE's storage manager.
func (p *process) pvesm() error {
	words, _, err := arguments(p.args[1:], none)

	switch {
	case err != nil:
		return err
	case slices.Equal(words, []string{"apiinfo"}):
		fmt.Fprint(p.out, "APIVER 11\nAPIAGE 2\n")

		return nil
	case len(words) == 2 && words[0] == "path":
		path, err := p.server.world.VolumePath(p.server.host, words[1])
		if err == nil {
			fmt.Fprintln(p.out, path)
		}

		return err
	default:
		return errUnknown
	}
}

// qm is Proxmox VE's manager of virtual machines.
func (p *process) qm() error {
	if len(p.args) == 2 && p.args[1] == "--help" {
		fmt.Fprintln(p.out, "USAGE: qm <COMMAND> [ARGS] [OPTIONS]")

		return nil
	}

	if len(p.args) < 3 {
		return errUnknown
	}

	rest := p.args[2:]
	if p.args[1] == "disk" && p.args[2] == "import" {
		rest = p.args[3:]
	}

	switch p.args[1] {
	case "importdisk", "disk":
		return p.importDisk(rest)
	case "set":
		return p.set(rest)
	default:
		return errUnknown
	}
}

func (p *process) importDisk(args []string) error {
	words, options, err := arguments(args, func(name string) bool { return name == "format" })
	if err != nil || len(words) != 3 {
		return errUnknown
	}

	id, err := strconv.Atoi(words[0])
	if err != nil {
		return errUnknown
	}

	fmt.Fprintf(p.out, "importing disk '%s' to VM %d ...\n", words[1], id)

	made, err := p.server.world.ImportDisk(p.ctx, p.server.host, world.ImportRequest{
		VMID: id, Source: words[1], Storage: words[2], Format: options["format"],
	})
	if err != nil {
		return err
	}

	if f := options["format"]; f != "" && f != made.Format {
		fmt.Fprintf(p.errs, "format '%s' is not supported by the target storage - using '%s' instead\n", f, made.Format)
	}

	fmt.Fprintf(p.out, "%s: successfully imported disk '%s'\n", made.Name, made.Volume)

	return nil
}

func (p *process) set(args []string) error {
	words, options, err := arguments(args, world.IsOption)
	if err != nil || len(words) != 1 {
		return errUnknown
	}

	id, err := strconv.Atoi(words[0])
	if err != nil {
		return errUnknown
	}

	for _, name := range slices.Sorted(maps.Keys(options)) {
		fmt.Fprintf(p.out, "update VM %d: -%s %s\n", id, name, options[name])
	}

	return p.server.world.Update(world.Caller{ID: "root@pam"}, p.server.host, id, world.UpdateRequest{Conf: options})
}
