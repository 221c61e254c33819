package stacks

import (
	"runtime"
	"slices"
	"sync"
	"weak"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"talos-proxmox/stacks/config"
)

// programs are the clusters of each program, for one that calls Deploy several times. Keys are weak pointers to the
// program's context, or what WithProgram names.
var programs = struct {
	sync.Mutex

	clusters map[any][]config.Planned
}{clusters: map[any][]config.Planned{}}

type programKey struct{}

// WithProgram returns a context that belongs to the program with an id, for a component package: each of its components
// has a context of its own.
func WithProgram(ctx *pulumi.Context, id string) *pulumi.Context {
	return ctx.WithValue(programKey{}, id)
}

// programOf returns the key of a program in programs.
func programOf(ctx *pulumi.Context) any {
	if id := ctx.Value(programKey{}); id != nil {
		return id
	}

	program := weak.Make(ctx)

	if programs.clusters[program] == nil {
		runtime.AddCleanup(ctx, func(ended weak.Pointer[pulumi.Context]) {
			programs.Lock()
			defer programs.Unlock()

			delete(programs.clusters, ended)
		}, program)
	}

	return program
}

// addClusters adds clusters to those of a program, unless they share something that they must not.
func addClusters(ctx *pulumi.Context, more []config.Planned) error {
	programs.Lock()
	defer programs.Unlock()

	program := programOf(ctx)

	all := slices.Concat(programs.clusters[program], more)
	if err := config.CheckDisjoint(all).Err(); err != nil {
		return err
	}

	programs.clusters[program] = all

	return nil
}
