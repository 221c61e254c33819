# The cluster of a row as a Terraform module of its own, with the same machines: bench compares the two. The inputs are
# what the program has planned.
terraform {
  required_providers {
    proxmox = { source = "bpg/proxmox" }
    talos   = { source = "siderolabs/talos" }
  }
}

locals {
  in     = jsondecode(file("${path.module}/input.json"))
  client = talos_machine_secrets.this.client_configuration
}

provider "proxmox" {
  endpoint  = local.in.endpoint
  api_token = local.in.token
  insecure  = true
}

provider "talos" {
  image_factory_url = local.in.factory
}

resource "talos_image_factory_schematic" "this" {
  schematic = "customization: {}\n"
}

resource "proxmox_virtual_environment_download_file" "image" {
  for_each     = toset(local.in.hosts)
  content_type = "iso"
  datastore_id = "local"
  node_name    = each.key
  file_name    = "terraform-${local.in.talos}.iso"
  url          = "${local.in.factory}/image/${talos_image_factory_schematic.this.id}/${local.in.talos}/nocloud-amd64.iso"
  overwrite    = false
}

resource "proxmox_virtual_environment_vm" "node" {
  for_each      = local.in.nodes
  name          = each.key
  node_name     = each.value.host
  vm_id         = each.value.vmid
  tags          = ["talos"]
  machine       = "q35"
  bios          = "ovmf"
  scsi_hardware = "virtio-scsi-pci"
  boot_order    = ["scsi0", "ide2"]

  stop_on_destroy = true

  agent { enabled = false }

  cpu {
    cores = 2
    type  = "host"
    flags = []
  }

  memory { dedicated = 4096 }

  efi_disk {
    datastore_id      = "local-lvm"
    file_format       = "raw"
    type              = "4m"
    pre_enrolled_keys = false
  }

  disk {
    datastore_id = "local-lvm"
    interface    = "scsi0"
    file_format  = "raw"
    size         = 40
    discard      = "on"
  }

  cdrom {
    file_id   = proxmox_virtual_environment_download_file.image[each.value.host].id
    interface = "ide2"
  }

  network_device {
    bridge      = "vmbr0"
    mac_address = each.value.mac
  }

  operating_system { type = "l26" }

  initialization {
    datastore_id = "local-lvm"
    interface    = "ide0"
    type         = "nocloud"

    dns { servers = ["1.1.1.1", "8.8.8.8"] }

    ip_config {
      ipv4 {
        address = each.value.cidr
        gateway = local.in.gateway
      }
    }
  }
}

resource "talos_machine_secrets" "this" {
  talos_version = local.in.talos
}

data "talos_machine_configuration" "role" {
  for_each           = toset(["controlplane", "worker"])
  cluster_name       = "bench"
  cluster_endpoint   = local.in.kubernetes_endpoint
  machine_type       = each.key
  machine_secrets    = talos_machine_secrets.this.machine_secrets
  talos_version      = local.in.talos
  kubernetes_version = local.in.kubernetes
}

resource "talos_machine_configuration_apply" "node" {
  for_each                    = local.in.nodes
  client_configuration        = local.client
  machine_configuration_input = data.talos_machine_configuration.role[each.value.role].machine_configuration
  node                        = each.value.address
  endpoint                    = each.value.address
  config_patches              = ["apiVersion: v1alpha1\nkind: HostnameConfig\nauto: \"off\"\nhostname: ${each.key}\n"]
  depends_on                  = [proxmox_virtual_environment_vm.node]
}

resource "talos_machine_bootstrap" "this" {
  client_configuration = local.client
  node                 = local.in.first
  endpoint             = local.in.first
  depends_on           = [talos_machine_configuration_apply.node]
}

resource "talos_cluster_kubeconfig" "this" {
  client_configuration = local.client
  node                 = local.in.first
  endpoint             = local.in.first
  depends_on           = [talos_machine_bootstrap.this]
}

output "kubeconfig" {
  value     = talos_cluster_kubeconfig.this.kubeconfig_raw
  sensitive = true
}
