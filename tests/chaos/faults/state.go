package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/apitype"

	"talos-proxmox/stacks/config"
)

// state is the stack's state as the backend has it on disk. It is read there because the CLI takes a second to tell it.
type state struct{ apitype.DeploymentV3 }

func (g *Harness) state() (state, error) {
	text, err := os.ReadFile(filepath.Join(g.r.Backend.Dir(), "state", ".pulumi", "stacks", config.Project,
		g.r.Stack.Name()+".json"))
	if err != nil {
		return state{}, err
	}

	var file struct {
		Checkpoint struct {
			Latest apitype.DeploymentV3 `json:"latest"`
		} `json:"checkpoint"`
	}

	if err := json.Unmarshal(text, &file); err != nil {
		return state{}, fmt.Errorf("the stack's state: %w", err)
	}

	return state{file.Checkpoint.Latest}, nil
}

// urns are all resources, sorted.
func (s state) urns() []string {
	var all []string
	for _, r := range s.Resources {
		all = append(all, string(r.URN))
	}

	slices.Sort(all)

	return all
}

// secrets is when the cluster's secrets were made; zero: there are none.
func (s state) secrets() time.Time {
	for _, r := range s.Resources {
		if r.Type == "talos:machine/secrets:Secrets" && r.Created != nil {
			return *r.Created
		}
	}

	return time.Time{}
}

// pendingOperations says what the state itself says of operations that did not end well.
func (s state) pendingOperations() string {
	for _, o := range s.PendingOperations {
		return fmt.Sprintf("the state has %s of %s under way", o.Type, o.Resource.URN.Name())
	}

	for _, r := range s.Resources {
		if len(r.InitErrors) > 0 {
			return fmt.Sprintf("the state has %s as not finished: %v", r.URN.Name(), r.InitErrors)
		}
	}

	return ""
}
