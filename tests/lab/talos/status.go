package talos

import (
	"fmt"
	"slices"
	"strings"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
)

// readiness says whether the machine is ready at its stage and what it lacks (Talos:
// controllers/runtime/machine_status.go).
func (n *node) readiness() (bool, []runtime.UnmetCondition) {
	n.mu.Lock()
	stage := n.stage
	kubernetes := n.kube
	n.mu.Unlock()

	if n.config() == nil || stage != StageBooting && stage != StageRunning {
		return true, nil
	}

	var unmet []runtime.UnmetCondition

	add := func(name, reason string) {
		if reason != "" {
			unmet = append(unmet, runtime.UnmetCondition{Name: name, Reason: reason})
		}
	}

	if len(n.addresses()) == 0 {
		add("network", "waiting on: address")
	}

	add("services", n.serviceProblems())

	if kubernetes.joined && kubernetes.in != nil {
		if _, ready := kubernetes.in.NodeReady(n.nodename()); !ready {
			add("nodeReady", fmt.Sprintf("node %q is not ready", n.nodename()))
		}
	} else if !n.config().K8sNodeConfig().SkipNodeRegistration() {
		add("nodeReady", fmt.Sprintf("node %q status is not available yet", n.nodename()))
	}

	return len(unmet) == 0, unmet
}

func (n *node) serviceProblems() string {
	required := []string{"apid", "machined", "kubelet"}
	if n.controlPlane() {
		required = append(required, "etcd", "trustd")
	}

	var (
		problems []string
		running  []string
	)

	for _, info := range n.services.list() {
		switch {
		case info.state != stateRunning:
			problems = append(problems, info.id+" not running")
		default:
			running = append(running, info.id)

			if info.known && info.problem != "" {
				problems = append(problems, info.id+" not healthy")
			}
		}
	}

	for _, id := range required {
		if !slices.Contains(running, id) && !slices.Contains(problems, id+" not running") {
			problems = append(problems, id+" not running")
		}
	}

	return strings.Join(problems, ", ")
}

// stages are the names of the stages in the API.
var stages = map[string]runtime.MachineStage{
	StageBooting: runtime.MachineStageBooting, StageMaintenance: runtime.MachineStageMaintenance,
	StageInstalling: runtime.MachineStageInstalling, StageRunning: runtime.MachineStageRunning,
	StageRebooting: runtime.MachineStageRebooting, StageResetting: runtime.MachineStageResetting,
	StageUpgrading: runtime.MachineStageUpgrading, StageShuttingDown: runtime.MachineStageShuttingDown,
}

// publishStatus publishes the machine's status, and tells those that watch events when it changed.
func (n *node) publishStatus(b *board) {
	n.mu.Lock()
	stage := stages[n.stage]
	n.mu.Unlock()

	ready, unmet := n.readiness()

	show(b, runtime.NewMachineStatus(), func(s *runtime.MachineStatusSpec) {
		s.Stage, s.Status.Ready, s.Status.UnmetConditions = stage, ready, unmet
	})

	if text := fmt.Sprint(stage, ready, unmet); text != n.reported {
		n.reported = text
		n.reportStatus(stage, ready, unmet)
	}
}

func (n *node) reportStatus(stage runtime.MachineStage, ready bool, unmet []runtime.UnmetCondition) {
	event := &machineapi.MachineStatusEvent{
		Stage:  machineapi.MachineStatusEvent_MachineStage(stage),
		Status: &machineapi.MachineStatusEvent_MachineStatus{Ready: ready},
	}

	for _, c := range unmet {
		event.Status.UnmetConditions = append(event.Status.UnmetConditions,
			&machineapi.MachineStatusEvent_MachineStatus_UnmetCondition{Name: c.Name, Reason: c.Reason})
	}

	n.events.add("", event)
}
