package contract

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
