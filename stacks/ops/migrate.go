package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"talos-proxmox/stacks/migrate"
)

// fromTerraform turns the variables of a Terraform environment into a stack file.
func fromTerraform() *cobra.Command {
	var (
		o       migrate.Options
		outputs string
	)

	c := &cobra.Command{
		Use: "migrate <terraform.tfvars>", Short: "Turn a terraform.tfvars into a stack file, on standard output",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			text, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}

			if outputs != "" {
				if o.Outputs, err = os.ReadFile(outputs); err != nil {
					return err
				}
			}

			r, err := migrate.TFVars(args[0], text, o)
			if err != nil {
				return err
			}

			for _, note := range r.Notes {
				fmt.Fprintln(c.ErrOrStderr(), "note: "+note)
			}

			for _, command := range r.Secrets {
				fmt.Fprintln(c.ErrOrStderr(), "run: "+command)
			}

			_, err = c.OutOrStdout().Write(r.File)

			return err
		},
	}
	c.Flags().StringVar(&o.Cluster, "cluster", "", "the name of the cluster; the directory's when left out")
	c.Flags().StringVar(&o.CIDR, "cidr", "", "the network of the nodes, for example 192.168.10.0/24")
	c.Flags().StringVar(&o.Talos, "talos", "", "the version of Talos in the templates; what their names say when left out")
	c.Flags().StringVar(&outputs, "outputs", "",
		"a file with what terraform output -json prints, for VMIDs, names and addresses")

	return c
}
