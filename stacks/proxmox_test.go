package stacks

import (
	"context"

	"talos-proxmox/components"
	"talos-proxmox/components/proxmoxapi"
)

// roomy is a Proxmox VE with room for whatever tests want to make.
type roomy struct{ components.Proxmox }

func (roomy) Hosts(context.Context) ([]proxmoxapi.Host, error) {
	var hosts []proxmoxapi.Host
	for _, name := range []string{"pve", "pve1", "pve2", "pve3", "proxmox1", "proxmox2", "proxmox3"} {
		hosts = append(hosts, proxmoxapi.Host{Name: name, Online: true})
	}

	return hosts, nil
}

func (roomy) Stores(context.Context, string) (map[string]proxmoxapi.Store, error) {
	stores := map[string]proxmoxapi.Store{}
	for _, name := range []string{"local", "local-lvm", "local-zfs", "ceph"} {
		stores[name] = proxmoxapi.Store{Content: []string{"images", "iso", "snippets"}, Active: true, Free: 1 << 50}
	}

	return stores, nil
}

func (roomy) Bridges(context.Context, string) ([]string, error) {
	return []string{"vmbr0", "vmbr1"}, nil
}
