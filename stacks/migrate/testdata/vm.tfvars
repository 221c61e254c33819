proxmox_api_url      = "https://pve.lan:8006"
proxmox_api_token_id = "terraform@pve!k3s-dev"
name                 = "k3s-dev-control-1"
node                 = "pve"
template             = "talos-v1.12.4-base"
cores                = 8
gpu_pci_bdf          = "0000:01:00.0"
