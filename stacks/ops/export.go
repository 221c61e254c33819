package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"talos-proxmox/stacks/contract"
	"talos-proxmox/stacks/export"
	"talos-proxmox/stacks/nodesjson"
)

// exports writes the contract as other tools read it.
func exports() *cobra.Command {
	parent := group(&cobra.Command{
		Use: "export", Short: "Write a stack's contract as other tools read it",
		Long: "Write a stack's contract as other tools read it.\n\n" +
			"The contract comes from a file, or from standard input:\n\n  pulumi stack output --json | go run ./stacks/ops " +
			"export ansible",
	})

	one := func(use, short string, write func(*contract.Contract) (string, error)) *cobra.Command {
		return &cobra.Command{
			Use: use + " [file]", Short: short, Args: cobra.MaximumNArgs(1),
			RunE: func(c *cobra.Command, args []string) error {
				text, err := input(c, args)
				if err != nil {
					return err
				}

				contract, err := contract.Read(text)
				if err != nil {
					return err
				}

				out, err := write(contract)
				if err == nil {
					_, err = io.WriteString(c.OutOrStdout(), out)
				}

				return err
			},
		}
	}

	var vip, login string

	nodes := one("nodes.json", "The nodes and their addresses, as nodes.json",
		func(contract *contract.Contract) (string, error) {
			text, err := nodesjson.Of(contract, vip, login).Encode()

			return string(text), err
		})
	nodes.Flags().StringVar(&vip, "vip", "",
		"the virtual address of the control planes; the first control plane's address when left out")
	nodes.Flags().StringVar(&login, "login-server", "", "the URL of a Headscale server")

	parent.AddCommand(
		one("talosctl", "Commands that tell talosctl of the nodes", export.Talosctl),
		one("ansible", "An inventory for Ansible, in YAML", func(contract *contract.Contract) (string, error) {
			text, err := export.Ansible(contract)

			return string(text), err
		}),
		nodes)

	return parent
}

// input is the file that is named, or standard input.
func input(c *cobra.Command, args []string) ([]byte, error) {
	if len(args) == 0 || args[0] == "-" {
		return io.ReadAll(c.InOrStdin())
	}

	return os.ReadFile(args[0])
}
