// Command kubernetes is the control plane of Kubernetes, kubectl and etcd in one binary, as they are released: the
// first argument says which of them a process is, the others are its own.
//
// The lab answers for both in memory. This is what it is compared with. Of the kubelet there is what reads its flags.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/etcdutl/v3/etcdutl"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app/options"
)

func main() {
	if len(os.Args) < 2 {
		unknown()
	}

	os.Args = os.Args[1:]

	switch os.Args[0] {
	case "etcd":
		untilStdinEnds()
		etcdmain.Main(os.Args)
	case "etcdutl":
		run(utility())
	case "kubectl":
		run(kubectl.NewDefaultKubectlCommand())
	case "kube-apiserver":
		untilStdinEnds()
		run(apiserver.NewAPIServerCommand())
	case "kube-controller-manager":
		untilStdinEnds()
		run(controllers.NewControllerManagerCommand())
	case "kube-scheduler":
		untilStdinEnds()
		run(scheduler.NewSchedulerCommand())
	case "kubelet":
		run(flagsOfKubelet())
	default:
		unknown()
	}
}

func unknown() {
	fmt.Fprintln(os.Stderr,
		"one of: etcd, etcdutl, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, kubelet")
	os.Exit(2)
}

func run(cmd *cobra.Command) { os.Exit(cli.Run(cmd)) }

// untilStdinEnds ends the process with whoever started it and holds the other end, however that ended.
func untilStdinEnds() {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)

		os.Exit(1)
	}()
}

// utility is what etcdutl does with snapshots.
func utility() *cobra.Command {
	cmd := &cobra.Command{Use: "etcdutl", SilenceUsage: true}
	cmd.PersistentFlags().StringVarP(&etcdutl.OutputFormat, "write-out", "w", "simple", "the output format")
	cmd.AddCommand(etcdutl.NewSnapshotCommand(), etcdutl.NewHashKVCommand())

	return cmd
}

// flagsOfKubelet reads the flags of a kubelet as it does when it starts, and ends.
func flagsOfKubelet() *cobra.Command {
	return &cobra.Command{
		Use: "kubelet", SilenceUsage: true, DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			flags, known := kubelet.NewKubeletFlags(), pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
			known.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
			flags.AddFlags(known)

			config, err := kubelet.NewKubeletConfiguration()
			if err != nil {
				return err
			}

			kubelet.AddKubeletConfigFlags(known, config)
			kubelet.AddGlobalFlags(known)

			if err := known.Parse(args); err != nil {
				return fmt.Errorf("failed to parse kubelet flag: %w", err)
			}

			return kubelet.ValidateKubeletFlags(flags)
		},
	}
}
