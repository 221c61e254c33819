package contract

// StackOutputs is everything that a stack exports, as pulumi stack output --json prints it. The JSON Schema of the
// outputs is made of it.
type StackOutputs struct {
	Inventory

	// The contract: all of the above in one value.
	Contract Contract `json:"talos_bootstrap_contract"`
	// Administrator's kubeconfig, secret; absent with bootstrap: external.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Administrator's talosconfig, secret; absent with bootstrap: external.
	Talosconfig string `json:"talosconfig,omitempty"`

	// The credentials of the kubeconfig one by one, secret; absent with it.
	KubernetesCredentials *KubernetesCredentials `json:"kubernetes_credentials,omitempty"`
	// Machine configuration of workers that others create, secret; with outputs.workerConfiguration.
	WorkerConfiguration string `json:"talos_worker_configuration,omitempty"`
	// Until when both are good, as RFC 3339 writes it; absent with them.
	CredentialsExpiry map[string]string `json:"credentials_expiry,omitempty"`
	// Schematic IDs that Talos nodes are installed from, by node name; absent where images carry nothing.
	Schematics map[string]string `json:"talos_schematics,omitempty"`
	// Private SSH key of K3s nodes, secret; with k3s.generateSSHKey.
	SSHPrivateKey string `json:"ssh_private_key,omitempty"`
	// How a cluster of K3s is; with cluster.kind k3s.
	K3s map[string]any `json:"k3s_status,omitempty"`
	// Commands to run next; absent with bootstrap: external.
	Hints map[string]string `json:"hints,omitempty"`

	// With outputs.legacy: known addresses of the control planes.
	ControlPlaneIPs []string `json:"control_plane_ips,omitempty"`
	// With outputs.legacy: known addresses of the workers.
	WorkerIPs []string `json:"worker_ips,omitempty"`
	// With outputs.legacy: known addresses of the GPU workers.
	GPUWorkerIPs []string `json:"gpu_worker_ips,omitempty"`
	// With outputs.legacy: VMIDs of the control planes.
	ControlPlaneVMIDs []int `json:"control_plane_vmids,omitempty" jsonschema:"minimum=100"`
	// With outputs.legacy: VMIDs of the workers.
	WorkerVMIDs []int `json:"worker_vmids,omitempty" jsonschema:"minimum=100"`
	// With outputs.legacy: VMIDs of the GPU workers.
	GPUWorkerVMIDs []int `json:"gpu_worker_vmids,omitempty" jsonschema:"minimum=100"`
	// With outputs.legacy: PCI addresses of the GPUs.
	GPUWorkerPCIBDFs []string `json:"gpu_worker_pci_bdfs,omitempty"`
}

// KubernetesCredentials are what tools take that read no kubeconfig.
type KubernetesCredentials struct {
	// URL of the Kubernetes API.
	Host string `json:"host"`
	// Certificate authority of the Kubernetes API, as PEM.
	ClusterCACertificate string `json:"cluster_ca_certificate"`
	// Certificate of the administrator, as PEM.
	ClientCertificate string `json:"client_certificate"`
	// Private key of the administrator, as PEM.
	ClientKey string `json:"client_key"`
}
