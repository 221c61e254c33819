package vms

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/checks"
	"talos-proxmox/components/proxmoxapi"
	"talos-proxmox/components/spec"
)

// unchanged are nodes of a pool that keep a setting as it was when their VM was made.
type unchanged struct {
	pool, key, path, wanted, has string
	nodes                        []string
}

// warnFirstBoot warns of settings that only new VMs get, where existing ones have others: what a cloud-init drive says,
// and the TPM. There is one warning for each pool and setting.
func (c *Checker) warnFirstBoot(nodes []plan.Node, settings []*proxmoxapi.Settings) {
	var found []*unchanged

	note := func(n plan.Node, key, path, wanted, has string) {
		if wanted == has {
			return
		}

		at := slices.IndexFunc(found, func(u *unchanged) bool { return u.pool == n.Pool && u.key == key && u.has == has })
		if at < 0 {
			found = append(found, &unchanged{pool: n.Pool, key: key, path: path, wanted: wanted, has: has})
			at = len(found) - 1
		}

		found[at].nodes = append(found[at].nodes, n.Name)
	}

	// Talos nodes have these in their machine configuration, which changes for running nodes, too.
	configured := c.Plan.Distribution == spec.DistributionTalos && c.Plan.Bootstrap != spec.BootstrapExternal

	for i, n := range nodes {
		if settings[i] == nil || settings[i].Current == nil || c.Recreates(n) {
			continue
		}

		current := settings[i].Current

		// A VM without it was not made by this program, or asks DHCP.
		if drive := proxmoxapi.Properties(current["ipconfig0"]); n.CloudInit != "" && !(n.Static && configured) &&
			c.Plan.Addressing == spec.AddressingStatic && cmp.Or(drive["gw"], drive["gw6"]) != "" {
			note(n, "gateway", "network.gateway", c.Plan.Gateway.String(), cmp.Or(drive["gw"], drive["gw6"]))
			note(n, "nameservers", "network.nameservers", joinAddresses(c.Plan), strings.Join(strings.FieldsFunc(
				current["nameserver"], func(r rune) bool { return r == ' ' || r == ',' || r == ';' }), ", "))

			if has, known := driveAddress(drive, n.Address); known && has.Addr() == n.Address {
				note(n, "network", "network.cidr", c.Plan.Network.String(), has.Masked().String())
			}
		}

		// A clone may have the TPM of its template.
		if has := current["tpmstate0"] != ""; has != n.TPM && (n.TPM || n.Template == "") {
			note(n, "tpm", "pools."+n.Pool+".tpm", fmt.Sprint(n.TPM), fmt.Sprint(has))
		}
	}

	remedy := "change the nodes by hand, or replace them with lifecycle.replace"

	switch {
	case c.Plan.Bootstrap == spec.BootstrapExternal:
		remedy = "change the nodes by hand"
	case c.Plan.Distribution == spec.DistributionTalos:
		remedy = "set it for running nodes in patches, or replace them with lifecycle.replace"
	}

	for _, u := range found {
		so := remedy
		if u.key == "tpm" && c.Plan.Bootstrap != spec.BootstrapExternal {
			so = "replace them with lifecycle.replace"
		}

		c.Warnings.Add(u.path, fmt.Sprintf("applies to new nodes only; these of pool %s were made with %q: %s", u.pool, u.has,
			checks.UpTo(u.nodes, 3)), u.wanted, so)
	}
}

func joinAddresses(p *plan.Plan) string {
	var all []string
	for _, a := range p.Nameservers {
		all = append(all, a.String())
	}

	return strings.Join(all, ", ")
}
