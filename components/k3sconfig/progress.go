package k3sconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/terminal"
)

// Finished says from the content of CloudInitStatus whether cloud-init has done all it will do, and what went wrong
// (cloud-init: status.json). Its last stage runs commands, so that the installation has begun by then.
func Finished(status string) (finished bool, failed []string, err error) {
	var s struct {
		V1 map[string]json.RawMessage `json:"v1"`
	}
	if err := json.Unmarshal([]byte(status), &s); err != nil || s.V1 == nil {
		return false, nil, errors.New("cloud-init's status cannot be read")
	}

	for _, stage := range []string{"init-local", "init", "modules-config", "modules-final"} {
		var one struct {
			Errors   []string `json:"errors"`
			Finished *float64 `json:"finished"`
		}

		if text, there := s.V1[stage]; there {
			if err := json.Unmarshal(text, &one); err != nil {
				return false, nil, fmt.Errorf("cloud-init's status of %s cannot be read", stage)
			}
		}

		failed = append(failed, one.Errors...)
		finished = one.Finished != nil
	}

	return finished, failed, nil
}

// Tail are the last lines of a log, as terminal.Plain shows them.
func Tail(log string, lines int) string {
	all := strings.Split(strings.TrimRight(terminal.Plain(log), "\n"), "\n")

	return strings.Join(slices.Clone(all[max(0, len(all)-lines):]), "\n")
}

// refusals are what K3s says again and again when servers do not let a node in, and what that comes from.
var refusals = []struct{ message, means string }{
	{
		"token CA hash does not match",
		"its servers have a different certificate authority than the state: another cluster has the address, or " +
			"the state belongs to an earlier cluster. Free the address, or restore the state that the servers were " +
			"created with",
	},
	{
		"certificate has expired or is not yet valid",
		"its clock or that of its servers is wrong, or the certificates of the servers have expired. Correct the clock " +
			"('date -u' shows it); where all are right, run 'sudo systemctl restart k3s' on the servers, which " +
			"renews them; the node keeps trying, and 'pulumi up' continues with it",
	},
	{
		"401 Unauthorized",
		"its servers reject its token: they were given a different one, or the state belongs to an earlier " +
			"cluster. Set token and agent-token in " +
			ConfigFile + " of each server to the values in the state, and restart k3s there; the node keeps " +
			"trying, and 'pulumi up' continues with it",
	},
	{
		"critical configuration value mismatch",
		"its settings differ from those of the server that it joins at; K3s names them in the lines above. Set them in " +
			ConfigFile + " of this machine to the values of that server, and in the configuration; the node keeps " +
			"trying, and 'pulumi up' continues with it",
	},
}

// Advice says what to do about what K3s complains of at the end of a log; empty where that speaks for itself.
func Advice(log string) string {
	for _, r := range refusals {
		if strings.Contains(log, r.message) {
			return r.means
		}
	}

	return ""
}
