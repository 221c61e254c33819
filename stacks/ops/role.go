package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/permissions"
	opsplan "talos-proxmox/stacks/ops/plan"
)

// roleOf prints the smallest role for a stack file.
func roleOf(o *options) *cobra.Command {
	var (
		major int
		name  string
	)

	c := &cobra.Command{
		Use: "role <stack or file> | csi | ccm", Args: cobra.ExactArgs(1),
		Short: "Print the pveum commands that create the role which a stack file needs",
		Long: "Print the pveum commands that create the role which a stack file needs. Nothing is contacted.\n\n" +
			"Run them on a Proxmox VE host, as root. The role does for the life of the stack: to deploy, change and destroy it.",
		RunE: func(c *cobra.Command, args []string) error {
			if major < plan.OldestProxmox || major > plan.NewestProxmox {
				return fmt.Errorf("--proxmox is a major version from %d to %d, not %d", plan.OldestProxmox, plan.NewestProxmox,
					major)
			}

			if role := addonRole(args[0], major); role != "" {
				_, err := io.WriteString(c.OutOrStdout(), role)

				return err
			}

			_, p, err := opsplan.OfFile(o.stackFile(args[0]))
			if err != nil {
				return err
			}

			_, err = io.WriteString(c.OutOrStdout(), fmt.Sprintf("pveum role add %s -privs \"%s\"\n", name,
				strings.Join(permissions.Role(p, major), " ")))

			return err
		},
	}
	c.Flags().IntVar(&major, "proxmox", plan.NewestProxmox, "the major version of Proxmox VE")
	c.Flags().StringVar(&name, "name", "TalosProxmox", "the name of the role")

	return c
}

// guestAgentAudit is the version of Proxmox VE that brought the privilege VM.GuestAgent.Audit.
const guestAgentAudit = 9

// addonRole creates the least that an addon needs (Proxmox CSI: Install plugin; Proxmox CCM: Install), with a user of
// its own. The last command shows the token. Empty: the addon needs no role.
func addonRole(addon string, major int) string {
	role, privileges := "", ""

	switch addon {
	case "csi":
		role, privileges = "CSI", "VM.Audit VM.Config.Disk Datastore.Allocate Datastore.AllocateSpace Datastore.Audit"
	case "ccm":
		role, privileges = "CCM", "VM.Audit Sys.Audit"
		if major >= guestAgentAudit {
			privileges += " VM.GuestAgent.Audit"
		}
	default:
		return ""
	}

	return fmt.Sprintf("pveum role add %[1]s -privs \"%[2]s\"\npveum user add kubernetes-%[3]s@pve\n"+
		"pveum aclmod / -user kubernetes-%[3]s@pve -role %[1]s\npveum user token add kubernetes-%[3]s@pve %[3]s -privsep 0\n",
		role, privileges, addon)
}
