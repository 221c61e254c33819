package plan

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"

	"talos-proxmox/components/spec"
)

// TestNewestTalos: the newest version that is supported is the newest that Talos' library knows.
func TestNewestTalos(t *testing.T) {
	kubernetes, err := compatibility.ParseKubernetesVersion("1.34.2")
	if err != nil {
		t.Fatal(err)
	}

	for minor, known := range map[int]bool{newestTalos: true, newestTalos + 1: false} {
		talos, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: fmt.Sprintf("v1.%d.0", minor)})
		if err != nil {
			t.Fatal(err)
		}

		if err := kubernetes.SupportedWith(talos); (err == nil) != known {
			t.Errorf("Talos 1.%d: %v", minor, err)
		}
	}
}

// TestContractVersion: no node is configured with defaults that the Talos provider does not know.
func TestContractVersion(t *testing.T) {
	for _, c := range []struct{ talos, made, want string }{
		{"v1.11.2", "", "v1.11.2"},
		{"v1.12.4", "", "v1.12.4"},
		{"v1.13.9", "", "v1.12.0"},
		{"v1.14.1", "", "v1.12.0"},
		{"v1.14.1", "v1.11.2", "v1.11.2"},
		{"v1.14.1", "v1.12.0", "v1.12.0"},
		{"v1.11.6", "v1.12.0", "v1.11.6"},
	} {
		p := &Plan{Talos: c.talos}
		if c.made != "" {
			p = p.WithContract(c.made)
		}

		if got := p.ContractVersion(); got != c.want {
			t.Errorf("Talos %s, made with %q: %s, not %s", c.talos, c.made, got, c.want)
		}
	}
}

// TestSupportMatrix: the document lists the versions that are accepted.
func TestSupportMatrix(t *testing.T) {
	page, err := os.ReadFile("../../stacks/docs/support-matrix.md")
	if err != nil {
		t.Fatal(err)
	}

	rows := []string{
		fmt.Sprintf("| Proxmox VE | %d, %d |", OldestProxmox, NewestProxmox),
		fmt.Sprintf("| K3s | 1.%d or later |", oldestK3s),
	}

	for minor := oldestTalos; minor <= newestTalos; minor++ {
		rows = append(rows, fmt.Sprintf("| 1.%d | 1.", minor))
	}

	for _, row := range rows {
		if !strings.Contains(string(page), "\n"+row) {
			t.Errorf("support-matrix.md has no row %q", row)
		}
	}

	if strings.Contains(string(page), fmt.Sprintf("\n| 1.%d |", oldestTalos-1)) ||
		strings.Contains(string(page), fmt.Sprintf("\n| 1.%d |", newestTalos+1)) {
		t.Error("support-matrix.md lists a version of Talos that is refused")
	}
}

// TestStatedCNI: production is warned of a pod network that was not chosen.
func TestStatedCNI(t *testing.T) {
	const warning = "cluster.cni.name: is not stated, and a running cluster keeps its pod network: Flannel enforces no " +
		"network " +
		"policies (given: flannel); state flannel, cilium or none"

	for _, c := range []struct {
		environment spec.Environment
		stated      spec.CNIName
		bootstrap   spec.BootstrapMode
		warned      bool
	}{
		{environment: spec.EnvironmentProduction, warned: true},
		{environment: spec.EnvironmentProduction, stated: spec.CNIFlannel},
		{environment: spec.EnvironmentLab},
		{environment: spec.EnvironmentProduction, bootstrap: spec.BootstrapExternal},
	} {
		kubernetes := "v1.34.2"
		if c.bootstrap == spec.BootstrapExternal {
			kubernetes = ""
		}

		p, err := New(spec.Spec{
			Environment: c.environment,
			Proxmox:     spec.Proxmox{Hosts: []spec.Host{{Name: "pve"}}},
			Cluster: spec.Cluster{
				Name: "c", Bootstrap: c.bootstrap, CNI: spec.CNI{Name: c.stated},
				Versions: spec.Versions{Talos: "v1.12.4", Kubernetes: kubernetes},
			},
			Network: spec.Network{CIDR: "10.0.0.0/24", Gateway: "10.0.0.1"},
			Pools:   map[string]spec.Pool{"control": {Role: spec.RoleControlPlane, Count: new(1), Addresses: "10.0.0.11"}},
		})
		if err != nil {
			t.Fatal(err)
		}

		warned := false
		for _, w := range p.Warnings {
			warned = warned || w.String() == warning
		}

		if warned != c.warned {
			t.Errorf("%+v: %v", c, p.Warnings)
		}
	}
}
