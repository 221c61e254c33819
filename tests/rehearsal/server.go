package rehearsal

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/luthermonson/go-proxmox"
	"golang.org/x/crypto/ssh"

	"talos-proxmox/components/k3sconfig"
	"talos-proxmox/components/plan"
	"talos-proxmox/components/preflight/permissions"
	"talos-proxmox/stacks/config"
	"talos-proxmox/tests/lab"
	"talos-proxmox/tests/lab/factory"
	"talos-proxmox/tests/lab/guests"
	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/machine"
	"talos-proxmox/tests/lab/talos"
	"talos-proxmox/tests/lab/ubuntu"
)

// Server is a Proxmox VE server that is not the lab's: the stack's VMs are made there, and the lab's systems run as its
// guests (see the package guests).
type Server struct {
	// Endpoint is the URL of its API, "https://127.0.8.6:8006", whose certificate is not checked.
	Endpoint string
	// TokenID and TokenSecret are what the stack uses.
	TokenID, TokenSecret string
	// Role is the one that the token has, on everything. It gets the privileges that the stack needs, and no others.
	Role string
	// RootTokenID and RootTokenSecret are the operator's, who prepares what a stack expects to find.
	RootTokenID, RootTokenSecret string
	// SSHKey is root's on the hosts, in PEM. SSH listens at port 22 of the hosts' addresses.
	SSHKey    string
	Addresses map[string]netip.Addr
	// Guests is the folder of the guests.
	Guests string
}

// Run runs a command on a host, as root, and returns what it printed.
func (s *Server) Run(ctx context.Context, host, command string) (string, error) {
	key, err := ssh.ParsePrivateKey([]byte(s.SSHKey))
	if err != nil {
		return "", err
	}

	client, err := ssh.Dial("tcp", s.access().sshAddress(host).String(), &ssh.ClientConfig{
		User: "root", Auth: []ssh.AuthMethod{ssh.PublicKeys(key)},
		HostKeyCallback: ssh.InsecureIgnoreHostKey(), //nolint:gosec // a server of this machine
	})
	if err != nil {
		return "", err
	}
	defer client.Close()

	stop := context.AfterFunc(ctx, func() { _ = client.Close() })
	defer stop()

	session, err := client.NewSession()
	if err != nil {
		return "", err
	}
	defer session.Close()

	var said strings.Builder

	session.Stderr = &said

	out, err := session.Output(command)
	if err != nil {
		err = fmt.Errorf("%w: %s", err, said.String())
	}

	return string(out), err
}

// prepare makes what a stack expects to find, as its operator would: the smallest role, storages, templates, ISO files,
// resource pools. What is there already stays.
func (s *Server) prepare(ctx context.Context, deployed *plan.Plan, c lab.Config, f *factory.Factory) error {
	p := &preparation{ctx: ctx, server: s, client: s.root(s.Endpoint), factory: f}

	p.role(s.Role, deployed)
	p.storages(c.Hosts)

	for _, file := range c.Files {
		for _, h := range c.Hosts {
			p.upload(h.Name, file.Storage, "iso", file.Name, f.Head(file.Asset), f.Size(file.Asset))
		}
	}

	for _, t := range c.Templates {
		p.template(t)
	}

	for _, id := range c.Pools {
		p.make("/pools", map[string]any{"poolid": id})
	}

	return errors.Join(p.errs...)
}

// access is how the program reaches the server.
func (s *Server) access() access {
	return access{
		endpoint: s.Endpoint, credentials: lab.Credentials{TokenID: s.TokenID, TokenSecret: s.TokenSecret},
		sshKey: s.SSHKey, sshHostKey: func(string) string { return "" }, // no stack names one
		sshAddress: func(host string) netip.AddrPort { return netip.AddrPortFrom(s.Addresses[host], 22) },
	}
}

// agents writes what the guest agents of the stack's VMs are to say. The stand-in for QEMU reads it when a VM starts,
// and answers instead of what runs in the VM. So each node's address is reserved before.
func (s *Server) agents(c *lab.Config, original config.Config, bits int, toLab func(netip.Addr) netip.Addr) error {
	next := c.DHCP.From

	for _, n := range grown(original) {
		address, reserved := c.Reservations[n.MAC]

		switch {
		case reserved:
		case n.Address.IsValid():
			address = toLab(n.Address)
		case next.IsValid():
			address, next = next, next.Next()
			c.Reservations[n.MAC] = address
		}

		// The provider takes addresses on loopback for none.
		links := [][]string{{netip.PrefixFrom(address, bits).String(), fmt.Sprintf("fd1a:b0::%x/64", n.VMID)}}
		for range n.NICs[1:] {
			links = append(links, []string{})
		}

		text, err := json.Marshal(map[string]any{"boot": 1, "shutdown": 1, "addresses": links})
		if err != nil {
			return err
		}

		if err := os.WriteFile(filepath.Join(s.Guests, strconv.Itoa(n.VMID)+".json"), text, 0o600); err != nil {
			return err
		}
	}

	c.DHCP = lab.Range{}

	return nil
}

// moveTo has the stack's VMs on a server, and what runs in them here.
func (r *Rehearsal) moveTo(
	ctx context.Context, s *Server, p *plan.Plan, c lab.Config, firmware machine.Firmware,
) error {
	err := s.prepare(ctx, p, c, r.Lab.Factory())
	if err != nil {
		return err
	}

	r.guests, err = guests.Start(guests.Options{
		Dir: s.Guests, Firmware: firmware, Files: k3sFiles,
		Log: func(line string) { r.Lab.Journal().Refused(journal.Guest, "hook", "guests", line) },
	})

	return err
}

// k3sFiles are what the program reads and writes on K3s nodes.
var k3sFiles = []string{
	"/etc/os-release", k3sconfig.FatalFile, k3sconfig.WantedFile, k3sconfig.DoneFile, k3sconfig.DatastoreFile,
	k3sconfig.CloudInitStatus, k3sconfig.InstallLog, k3sconfig.CloudInitLog,
}

// root is a client with root's token.
func (s *Server) root(endpoint string) *proxmox.Client {
	return proxmox.NewClient(endpoint+"/api2/json", proxmox.WithHTTPClient(&http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, //nolint:gosec // as the name says
	}), proxmox.WithAPIToken(s.RootTokenID, s.RootTokenSecret))
}

// preparation keeps what went wrong.
type preparation struct {
	ctx     context.Context //nolint:containedctx // of one call
	server  *Server
	client  *proxmox.Client
	factory *factory.Factory
	errs    []error
}

func (p *preparation) note(what string, err error) bool {
	if err != nil {
		p.errs = append(p.errs, fmt.Errorf("%s: %w", what, err))
	}

	return err == nil
}

// make creates something that may be there already.
func (p *preparation) make(path string, values map[string]any) {
	err := p.client.Post(p.ctx, path, values, nil)
	if err != nil && !strings.Contains(err.Error(), "already exists") &&
		!strings.Contains(err.Error(), "already defined") {
		p.note("POST "+path, err)
	}
}

// task does something that the server does in a task.
func (p *preparation) task(path string, values map[string]any) bool {
	var id proxmox.UPID

	if !p.note("POST "+path, p.client.Post(p.ctx, path, values, &id)) {
		return false
	}

	t := proxmox.NewTask(id, p.client)
	if !p.note("POST "+path, t.Wait(p.ctx, 200*time.Millisecond, time.Minute)) {
		return false
	}

	if t.IsFailed {
		p.note("POST "+path, errors.New(t.ExitStatus))
	}

	return !t.IsFailed
}

// role gives a role the privileges that a stack needs, and no others.
func (p *preparation) role(name string, deployed *plan.Plan) {
	var version struct{ Version string }

	if !p.note("version", p.client.Get(p.ctx, "/version", &version)) {
		return
	}

	first, _, _ := strings.Cut(version.Version, ".")

	major, err := strconv.Atoi(first)
	if p.note("version", err) {
		p.note("role "+name, p.client.Put(p.ctx, "/access/roles/"+name,
			map[string]any{"privs": strings.Join(permissions.Role(deployed, major), ",")}, nil))
	}
}

// storages adds what is missing: directories for files, and thin volumes of the volume group that each host has.
func (p *preparation) storages(hosts []lab.Host) {
	for _, h := range hosts {
		for _, s := range h.Storages {
			content := strings.Join(append(slices.Clone(s.Content), "import"), ",")

			switch {
			case s.Name == "local":
				p.note("storage local", p.client.Put(p.ctx, "/storage/local", map[string]any{
					"content": "images,iso,vztmpl,snippets,import,backup",
				}, nil))
			case s.Type == "dir":
				p.make("/storage", map[string]any{
					"storage": s.Name, "type": "dir", "path": "/var/lib/vz/" + s.Name, "content": content,
				})
			default:
				p.make("/storage", map[string]any{
					"storage": s.Name, "type": "lvmthin", "vgname": "pve", "thinpool": "data", "content": "images",
				})
			}
		}
	}
}

// upload puts a file of a size on a storage, which begins with a head.
func (p *preparation) upload(host, storage, content, name string, head []byte, size int64) {
	dir, err := os.MkdirTemp("", "talos-proxmox-upload-")
	if !p.note(name, err) {
		return
	}
	defer os.RemoveAll(dir)

	file := filepath.Join(dir, name)

	if !p.note(name, os.WriteFile(file, head, 0o600)) || !p.note(name, os.Truncate(file, size)) {
		return
	}

	f, err := os.Open(file)
	if !p.note(name, err) {
		return
	}
	defer f.Close()

	// Hosts hand files on to each other over SSH.
	client := p.server.root("https://" + p.server.Addresses[host].String() + ":8006")

	var id proxmox.UPID
	if p.note("upload of "+name, client.Upload("/nodes/"+host+"/storage/"+storage+"/upload",
		map[string]string{"content": content}, f, &id)) {
		p.note("upload of "+name, proxmox.NewTask(id, client).Wait(p.ctx, 200*time.Millisecond, time.Minute))
	}
}

// template makes a template again: what is on it may be of another rehearsal.
func (p *preparation) template(t lab.Template) {
	vms := "/nodes/" + t.Host + "/qemu"
	vm := vms + "/" + strconv.Itoa(t.VMID)

	var there map[string]any
	if p.client.Get(p.ctx, vm+"/config", &there) == nil {
		var id proxmox.UPID
		if p.note("DELETE "+vm, p.client.Delete(p.ctx, vm, &id)) {
			p.note("DELETE "+vm, proxmox.NewTask(id, p.client).Wait(p.ctx, 200*time.Millisecond, time.Minute))
		}
	}

	var head []byte

	switch c := t.Content.(type) {
	case *talos.Image:
		head = p.factory.Head(lab.Asset{
			Schematic: c.ID, Version: c.Version, Platform: c.Platform, SecureBoot: c.SecureBoot,
		})
	case *ubuntu.Image:
		head = ubuntu.Head(c.ID + " " + c.Version)
	}

	name := t.Name + ".raw"
	p.upload(t.Host, "local", "import", name, head, 1<<20)

	values := map[string]any{
		"vmid": t.VMID, "name": t.Name, "memory": 2048, "net0": "virtio,bridge=vmbr0", "agent": "1", "serial0": "socket",
		t.Interface: t.Storage + ":0,import-from=local:import/" + name, "boot": "order=" + t.Interface,
	}

	for key, value := range t.Conf {
		values[key] = value
	}

	if values["bios"] == "ovmf" {
		values["efidisk0"] = t.Storage + ":1,efitype=4m"
	}

	if t.CloudInit != "" {
		values[t.CloudInit] = t.Storage + ":cloudinit"
	}

	if p.task(vms, values) {
		p.note("size of "+t.Name, p.client.Put(p.ctx, vm+"/resize",
			map[string]any{"disk": t.Interface, "size": strconv.Itoa(t.DiskGiB) + "G"}, nil))
		p.task(vm+"/template", nil)
	}
}
