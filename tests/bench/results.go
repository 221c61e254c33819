package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"time"
)

// Result is what was measured of a row.
type Result struct {
	Row
	// Parallel is how many operations the engine was allowed at a time.
	Parallel int `json:"parallel"`
	// Steps in the order they were taken. Several clusters at once have one of each kind for each.
	Steps []Step `json:"steps"`
	// Downloads are the bytes that each host fetched, by its name.
	Downloads map[string]int64 `json:"downloads"`
	// State is what the engine keeps of the stack once it is created.
	State State `json:"state"`
	// Terraform are the stages of the same machines by Terraform, with the same providers.
	Terraform []Step `json:"terraform,omitempty"`
	// Bare are the creation and the destruction of the same resources by a program that only registers them.
	Bare []Step `json:"bare,omitempty"`
}

// State is how large the state of a stack is.
type State struct {
	Resources int   `json:"resources"`
	Bytes     int64 `json:"bytes"`
}

// Stage is what is done to a stack.
type Stage string

// The stages of a stack's life, in their order.
const (
	First   Stage = "first preview"
	Create  Stage = "create"
	Again   Stage = "up, no change"
	Preview Stage = "preview"
	Refresh Stage = "refresh"
	Destroy Stage = "destroy"
)

// file is the stage in the name of a file.
func (s Stage) file() string {
	return strings.ReplaceAll(strings.ReplaceAll(string(s), ",", ""), " ", "-")
}

// Step is one command on a stack.
type Step struct {
	Stage Stage `json:"stage"`
	// Wall is from the start of the command to its end; of a creation, until every node is ready.
	Wall time.Duration `json:"wall"`
	// Engine is how long the engine was at it: without the start of the CLI, and what it does at its end.
	Engine time.Duration `json:"engine"`
	// Worked is from the first request to the last that the lab was asked.
	Worked time.Duration `json:"worked"`
	// CriticalPath is the longest chain of what takes time in the lab.
	CriticalPath time.Duration `json:"criticalPath"`
	// Calls by kind. Polls are those that only ask whether something has come to an end: how many depends on the time it
	// takes.
	Calls map[string]int `json:"calls"`
	Polls map[string]int `json:"polls"`
	// Processes are what the command started, by what they are.
	Processes map[Process]Use `json:"processes"`
	// Saves are those of the state.
	Saves Saves `json:"saves"`
}

// Use is what a process used.
type Use struct {
	// PeakMiB is the most memory it ever held; of several of a kind, that of the largest.
	PeakMiB int `json:"peakMiB"`
	// CPU is the time that it computed.
	CPU time.Duration `json:"cpu"`
}

// step returns the first step of a stage.
func (r Result) step(stage Stage) Step { return first(r.Steps, stage) }

func first(steps []Step, stage Stage) Step {
	for _, s := range steps {
		if s.Stage == stage {
			return s
		}
	}

	return Step{}
}

// slowest is how long a stage took, of several clusters at once the last one.
func (r Result) slowest(stage Stage) time.Duration {
	var most time.Duration

	for _, s := range r.Steps {
		if s.Stage == stage {
			most = max(most, s.Wall)
		}
	}

	return most
}

// ratio is how much longer than the lab needed the step took.
func (s Step) ratio() float64 {
	if s.CriticalPath == 0 {
		return 0
	}

	return s.Worked.Seconds() / s.CriticalPath.Seconds()
}

func sum(calls map[string]int) int {
	total := 0
	for _, n := range calls {
		total += n
	}

	return total
}

// Report is what the results file holds.
type Report struct {
	// Machine that it ran on.
	Cores int       `json:"cores"`
	Began time.Time `json:"began"`
	// Providers that it was measured with.
	Providers string   `json:"providers"`
	Results   []Result `json:"results"`
}

// readReport returns what earlier runs have measured; nothing when there is no file.
func readReport(path string) (*Report, error) {
	report := &Report{Cores: runtime.NumCPU(), Began: time.Now().UTC().Truncate(time.Second)}

	if path == "" {
		return report, nil
	}

	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return report, nil
	} else if err != nil {
		return nil, err
	}

	if err := json.Unmarshal(text, report); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}

	return report, nil
}

// write takes the place of the file at once, so that an interrupt leaves what was there.
func (r *Report) write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}

	if err := os.WriteFile(path+".new", append(text, '\n'), 0o644); err != nil { //nolint:gosec // for everybody to read
		return err
	}

	return os.Rename(path+".new", path)
}

// has says whether a row has been measured.
func (r *Report) has(row Row) bool {
	for _, done := range r.Results {
		if done.Row == row {
			return true
		}
	}

	return false
}
