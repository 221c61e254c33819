package timeline

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Latencies says how long each thing in the lab takes. The zero value takes no time at all, for tests that do not ask
// about time; DefaultLatencies is for people who watch.
type Latencies struct {
	// Clone is a whole clone, whatever the number and size of the disks.
	Clone time.Duration
	// CreateVM is the creation of a VM without a clone, disks included.
	CreateVM time.Duration
	// Start is what Proxmox VE needs to start a VM, before its firmware runs.
	Start time.Duration
	// Stop is what Proxmox VE needs to end a VM, after the guest has shut down or was cut.
	Stop   time.Duration
	Delete time.Duration
	// Free is the deletion of a file or a disk.
	Free     time.Duration
	Resize   time.Duration
	MoveDisk time.Duration
	Migrate  time.Duration
	Template time.Duration
	// Download is a download by a host, whatever the size.
	Download time.Duration
	// Import is the import of a disk image, whatever the size.
	Import time.Duration
	// Boot is from power-on to an operating system that answers, each time.
	Boot time.Duration
	// Pull is the pull of a container image by a node, on behalf of a client or of an upgrade.
	Pull time.Duration
	// Install is the installation to disk, until the machine restarts by itself.
	Install time.Duration
	// Apply is from an accepted configuration until the node acts on it.
	Apply time.Duration
	// Services is from the node's API until its container runtime runs; a bootstrap is refused before.
	Services time.Duration
	// Etcd is from bootstrap (or a joined member) to a healthy etcd.
	Etcd time.Duration
	// APIServer is from a healthy etcd to a Kubernetes API server that answers.
	APIServer time.Duration
	// Kubelet is from a node's registration until it is Ready.
	Kubelet time.Duration
	// Drain is how long a node that goes down of its own accord waits for pods that a disruption budget holds (Talos: five
	// minutes).
	Drain time.Duration
}

// DefaultLatencies is something a person can watch: a small cluster takes about half a minute.
func DefaultLatencies() Latencies {
	return Latencies{
		Clone:     3 * time.Second,
		CreateVM:  time.Second,
		Start:     500 * time.Millisecond,
		Stop:      time.Second,
		Delete:    500 * time.Millisecond,
		Free:      200 * time.Millisecond,
		Resize:    300 * time.Millisecond,
		MoveDisk:  2 * time.Second,
		Migrate:   3 * time.Second,
		Template:  time.Second,
		Download:  3 * time.Second,
		Import:    2 * time.Second,
		Boot:      3 * time.Second,
		Pull:      500 * time.Millisecond,
		Install:   6 * time.Second,
		Apply:     500 * time.Millisecond,
		Services:  500 * time.Millisecond,
		Etcd:      2 * time.Second,
		APIServer: 3 * time.Second,
		Kubelet:   time.Second,
		Drain:     5 * time.Second,
	}
}

// Set changes latencies by name, in any case: "clone" to "10s". The error names what there is.
func (l *Latencies) Set(values map[string]string) error {
	v := reflect.ValueOf(l).Elem()

	var known []string
	for i := range v.NumField() {
		known = append(known, strings.ToLower(v.Type().Field(i).Name))
	}

	var errs []error

	for _, name := range slices.Sorted(maps.Keys(values)) {
		i := slices.Index(known, strings.ToLower(name))
		d, err := time.ParseDuration(values[name])

		switch {
		case i < 0:
			errs = append(errs, fmt.Errorf("there is no latency %q: choose from %s", name, strings.Join(known, ", ")))
		case err != nil || d < 0:
			errs = append(errs, fmt.Errorf("latency %s: %q is no time span: write it like 10s", name, values[name]))
		default:
			v.Field(i).SetInt(int64(d))
		}
	}

	return errors.Join(errs...)
}
