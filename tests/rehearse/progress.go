package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/events"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optdestroy"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optpreview"
	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"
	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"
	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"

	"talos-proxmox/tests/rehearsal"
)

// phases name what an operation on a resource means to an operator who watches.
var phases = map[string]string{
	"talos:machine/secrets:Secrets":                       "secrets",
	"talos:imageFactory/schematic:Schematic":              "image",
	"proxmoxve:Download/file:File":                        "image",
	"proxmoxve:Hardware/mapping/pci:Pci":                  "gpu",
	"proxmoxve:VM/virtualMachine:VirtualMachine":          "machine",
	"talos:machine/configurationApply:ConfigurationApply": "configuration",
	"talos:cluster/kubeconfig:Kubeconfig":                 "kubeconfig",
	"proxmoxve:Storage/file:File":                         "user data",
	"pulumi:index:Stash":                                  "state",
}

// progress shows what the engine does, one line per step.
type progress struct {
	out    io.Writer
	start  time.Time
	events chan events.EngineEvent
	// quiet leaves steps out: a preview takes none.
	quiet bool
	// said are the findings of the policy pack that have been shown; nil: none.
	said map[string]bool
}

// run runs an operation and shows its events. The error is what the engine said, not what it printed.
func (p progress) run(operation func(progress) error) error {
	p.events = make(chan events.EngineEvent)
	said := make(chan string, 1)

	go func() { said <- p.show() }()

	err := operation(p)
	if err == nil {
		<-said

		return nil
	}

	select {
	case reason := <-said:
		if reason != "" {
			return fmt.Errorf("the stack did not come about:\n%s", reason)
		}
	case <-time.After(lastEvents):
	}

	return err
}

// lastEvents bounds the wait for the events of an operation that failed: one that never began does not end them.
const lastEvents = 3 * time.Second

// wrapping is what the engine puts around the program's error.
var wrapping = regexp.MustCompile(`^an unhandled error occurred:\s*(program failed:\s*)?(1 error occurred:\s*\*\s*)?`)

// preview has the policy pack check the stack as far as it is known before anything is made.
func (p progress) preview(ctx context.Context, s auto.Stack, packs []string) error {
	_, err := s.Preview(ctx, optpreview.EventStreams(p.events), optpreview.SuppressProgress(),
		optpreview.PolicyPacks(packs...))

	return err
}

func (p progress) up(ctx context.Context, s auto.Stack, packs []string) error {
	_, err := s.Up(ctx, optup.EventStreams(p.events), optup.SuppressProgress(), optup.PolicyPacks(packs...))

	return err
}

func (p progress) destroy(ctx context.Context, s auto.Stack) error {
	return rehearsal.Destroy(ctx, s, optdestroy.EventStreams(p.events), optdestroy.SuppressProgress())
}

// show prints events until they end, and returns the errors among them.
func (p progress) show() string {
	var errors, broken []string

	for e := range p.events {
		switch {
		case e.ResOutputsEvent != nil:
			p.resource(e.ResOutputsEvent.Metadata, "done")
		case e.ResOpFailedEvent != nil:
			p.resource(e.ResOpFailedEvent.Metadata, "FAILED")
		case e.ResourcePreEvent != nil:
			p.resource(e.ResourcePreEvent.Metadata, "...")
		case e.PolicyEvent != nil:
			finding := e.PolicyEvent.PolicyName + ": " + lastLine(e.PolicyEvent.Message)
			if !p.said[finding] {
				p.said[finding] = true
				p.line(e.PolicyEvent.EnforcementLevel, finding)
			}

			if e.PolicyEvent.EnforcementLevel == string(apitype.Mandatory) {
				broken = append(broken, e.PolicyEvent.PolicyName)
			}
		case e.DiagnosticEvent != nil:
			d := e.DiagnosticEvent
			text := strings.TrimSpace(d.Message)

			switch d.Severity {
			case "error":
				errors = append(errors, wrapping.ReplaceAllString(text, ""))
			case "warning", "info":
				p.line(d.Severity, text)
			}
		}
	}

	if len(broken) > 0 {
		slices.Sort(broken)

		// The engine's own word for it says no more.
		errors = slices.DeleteFunc(errors, func(e string) bool { return e == "preview failed" || e == "update failed" })
		errors = append(errors, "rules that are enforced are broken: "+strings.Join(slices.Compact(broken), ", "))
	}

	return strings.Join(errors, "\n")
}

// lastLine is what a policy has found; the lines before it say what the policy is.
func lastLine(message string) string {
	message = strings.TrimSpace(message)

	return message[strings.LastIndex(message, "\n")+1:]
}

func (p progress) resource(m apitype.StepEventMetadata, state string) {
	phase, ok := phases[m.Type]
	if !ok || p.quiet || m.Op == apitype.OpSame || m.Op == apitype.OpRead {
		return
	}

	p.line(phase, fmt.Sprintf("%s %s %s", m.Op, resource.URN(m.URN).Name(), state))
}

func (p progress) line(phase, text string) {
	fmt.Fprintf(p.out, "%7s  %-14s %s\n", elapsed(p.start), phase, text)
}

func elapsed(start time.Time) string {
	return fmt.Sprintf("%.1fs", time.Since(start).Seconds())
}
