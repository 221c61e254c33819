package contract

import (
	"fmt"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// Names of the stack outputs. Other programs rely on them.
const (
	OutputControlPlaneEndpoints = "talos_control_plane_endpoints"
	OutputBootstrapNodes        = "talos_bootstrap_nodes"
	OutputNodeIPMap             = "talos_node_ip_map"
	OutputNodeVMIDMap           = "talos_node_vmid_map"
	OutputContract              = "talos_bootstrap_contract"
	// OutputKubeconfig and OutputTalosconfig are secret.
	OutputKubeconfig  = "kubeconfig"
	OutputTalosconfig = "talosconfig"

	// OutputKubernetesCredentials are those of the kubeconfig one by one, secret: host, cluster_ca_certificate,
	// client_certificate and client_key, the last three as PEM.
	OutputKubernetesCredentials = "kubernetes_credentials"

	// OutputWorkerConfiguration is the machine configuration of workers that others create, secret; with
	// outputs.workerConfiguration.
	OutputWorkerConfiguration = "talos_worker_configuration"

	// OutputCredentialsExpiry says until when kubeconfig and talosconfig are good.
	OutputCredentialsExpiry = "credentials_expiry"
	// OutputNextSteps are commands to go on with.
	OutputNextSteps = "hints"

	// OutputSchematics are the schematic IDs that Talos nodes are installed from, by node name.
	OutputSchematics = "talos_schematics"

	// OutputSSHPrivateKey logs in to K3s nodes, secret; with k3s.generateSSHKey.
	OutputSSHPrivateKey = "ssh_private_key"
	// OutputK3s is how a cluster of K3s is: the health of its nodes, and how to reach them.
	OutputK3s = "k3s_status"

	// The previous outputs, with outputs.legacy.
	OutputControlPlaneIPs   = "control_plane_ips"
	OutputWorkerIPs         = "worker_ips"
	OutputGPUWorkerIPs      = "gpu_worker_ips"
	OutputControlPlaneVMIDs = "control_plane_vmids"
	OutputWorkerVMIDs       = "worker_vmids"
	OutputGPUWorkerVMIDs    = "gpu_worker_vmids"
	OutputGPUWorkerPCIBDFs  = "gpu_worker_pci_bdfs"
)

// Outputs is what a stack of this program offers to other stacks.
type Outputs struct {
	Contract Contract
	// Kubeconfig and Talosconfig are secret.
	Kubeconfig, Talosconfig pulumi.StringOutput
}

// ReadOutputs reads the outputs of another stack. The contract is there as plain values, so that it may shape the
// reading program's resources. It is an error when the stack has not been deployed.
func ReadOutputs(ref *pulumi.StackReference) (*Outputs, error) { return ReadOutputsOf(ref, "") }

// ReadOutputsOf reads the outputs of one cluster of several, which their stack exports under names with a prefix each:
// with "home-", home-kubeconfig and so on.
func ReadOutputsOf(ref *pulumi.StackReference, prefix string) (*Outputs, error) {
	name := prefix + OutputContract

	details, err := ref.GetOutputDetails(name)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}

	whole, err := decode(details.Value, name)
	if err != nil {
		return nil, err
	}

	secret := func(name string) pulumi.StringOutput {
		return pulumi.ToSecret(ref.GetStringOutput(pulumi.String(prefix + name))).(pulumi.StringOutput)
	}

	return &Outputs{Contract: *whole, Kubeconfig: secret(OutputKubeconfig), Talosconfig: secret(OutputTalosconfig)}, nil
}
