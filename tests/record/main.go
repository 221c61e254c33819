// Command record asks a Proxmox VE what the program and the provider ask of one, and writes its answers without what
// varies: the recordings that the lab is held to. It makes and removes the VMs 7001 and 7002, a pool and a mapping, so
// it is for servers that nothing else uses. It serves files on loopback that the server downloads.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"talos-proxmox/tests/command"
	"talos-proxmox/tests/lab/recording"
)

func main() { command.Main(run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := pflag.NewFlagSet("record", pflag.ContinueOnError)
	endpoint := flags.String("endpoint", "", "the server, https://127.0.8.6:8006")
	token := flags.String("token-id", "root@pam!full", "the id of a token that may do everything")
	version := flags.String("version", "", "the server's version, 9.2.11")
	cluster := flags.Bool("cluster", false, "it is a cluster of the hosts pve, pve2 and pve3")

	if err := flags.Parse(args); err != nil {
		return err
	}

	major, err := strconv.Atoi(strings.SplitN(*version, ".", 2)[0])
	if *endpoint == "" || err != nil || flags.NArg() > 0 {
		return errors.New("usage: PROXMOX_TOKEN_SECRET=... go run ./tests/record --endpoint URL --version 9.2.11 " +
			"[--cluster] > file")
	}

	s := recording.Server{
		Endpoint:      strings.TrimSuffix(*endpoint, "/"),
		Authorization: fmt.Sprintf("PVEAPIToken=%s=%s", *token, os.Getenv("PROXMOX_TOKEN_SECRET")),
	}

	setup := recording.Host
	if *cluster {
		setup = recording.Cluster
	}

	answers, err := s.Ask(ctx, recording.Requests(setup, major))
	if err != nil {
		return err
	}

	e := json.NewEncoder(out)
	e.SetIndent("", " ")

	return e.Encode(answers)
}
