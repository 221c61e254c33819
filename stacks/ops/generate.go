package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"talos-proxmox/stacks/ops/generate"
)

// secretVariable holds the secret of the API token, or the password of the user.
const secretVariable = "TALOS_PROXMOX_SECRET"

// fromCluster writes the stack file of a cluster that stands.
func fromCluster() *cobra.Command {
	var o generate.Options

	c := &cobra.Command{
		Use: "generate", Aliases: []string{"describe"}, Args: cobra.NoArgs,
		Short: "Write the stack file of an existing cluster to standard output; ops import then takes it over",
		Long: "Write the stack file of an existing cluster to standard output; ops import then takes it over.\n\n" +
			"The secret of the token, or the password of the user, is in the environment variable " + secretVariable + ".",
		RunE: func(c *cobra.Command, _ []string) error {
			secret := os.Getenv(secretVariable)
			if o.Access.TokenID != "" {
				o.Access.TokenSecret = secret
			} else {
				o.Access.Password = secret
			}

			r, err := generate.Stack(c.Context(), o)
			if err != nil {
				return err
			}

			for _, note := range r.Notes {
				fmt.Fprintln(c.ErrOrStderr(), "note: "+note)
			}

			// Last: secrets in plain text are of no use without the file.
			if _, err := c.OutOrStdout().Write(r.File); err != nil {
				return err
			}

			return r.WriteSecrets(c.ErrOrStderr())
		},
	}

	flags := c.Flags()
	flags.StringVar(&o.Access.Endpoint, "endpoint", "", "URL of Proxmox VE, for example https://pve.lan:8006")
	flags.BoolVar(&o.Access.Insecure, "insecure", false, "accept any certificate of Proxmox VE")
	flags.StringVar(&o.Access.TokenID, "token-id", "", "API token, user@realm!name")
	flags.StringVar(&o.Access.Username, "username", "", "user instead of a token, user@realm")
	flags.StringVar(&o.Tag, "tag", "", "the VMs with this tag are the cluster's")
	flags.StringVar(&o.VMIDs, "vmids", "", "the VMs of these ranges are, for example 401-449,501")
	flags.StringVar(&o.Talosconfig, "talosconfig", "", "an administrator's talosconfig")
	flags.StringVar(&o.ControlPlane, "control-plane", "", "the address of a control plane, where the talosconfig has none")

	return c
}
