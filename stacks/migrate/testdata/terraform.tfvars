# Provider
proxmox_api_url          = "https://pve.lan:8006/api2/json"
proxmox_api_token_id     = "terraform@pve!k3s-dev"
proxmox_api_token_secret = "0d8ad0f5-4b5e-4c54-9d4b-5c3c8a3b7a11"

# Placement and templates
node                   = "pve"
control_plane_template = "talos-v1.12.4-base"
worker_template        = "talos-v1.12.4-base"
gpu_worker_template    = 9000

# Topology
worker_count        = "2"
gpu_worker_pci_bdfs = [
  "0000:01:00.0",
  "0000:02:00.0",
]

# Of the module
cores          = 2
memory_mb      = 4096
disk_gb        = 40
disk_pool      = "tank"
network_bridge = "vmbr0"
gpu_pcie_mode  = true
gpu_rombar     = false
onboot         = true

# Of others
ssh_password = "hunter2"
