package plan

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
)

// TestNewestTalos: the newest version that is supported is the newest that Talos' library knows.
func TestNewestTalos(t *testing.T) {
	kubernetes, err := compatibility.ParseKubernetesVersion("1.34.2")
	if err != nil {
		t.Fatal(err)
	}

	for minor, known := range map[int]bool{NewestTalos: true, NewestTalos + 1: false} {
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
		fmt.Sprintf("| K3s | 1.%d or later |", OldestK3s),
	}

	for minor := OldestTalos; minor <= NewestTalos; minor++ {
		rows = append(rows, fmt.Sprintf("| 1.%d | 1.", minor))
	}

	for _, row := range rows {
		if !strings.Contains(string(page), "\n"+row) {
			t.Errorf("support-matrix.md has no row %q", row)
		}
	}

	if strings.Contains(string(page), fmt.Sprintf("\n| 1.%d |", OldestTalos-1)) ||
		strings.Contains(string(page), fmt.Sprintf("\n| 1.%d |", NewestTalos+1)) {
		t.Error("support-matrix.md lists a version of Talos that is refused")
	}
}
