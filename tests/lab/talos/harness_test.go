package talos_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/protobuf/types/known/emptypb"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/machine"
	"talos-proxmox/tests/lab/talos"
	"talos-proxmox/tests/lab/timeline"
)

const (
	talosVersion = "v1.12.4"
	kubeVersion  = "1.34.2"
	gib          = int64(1) << 30
)

// TestMain lets more tests run at once than there are processors: they wait most of the time.
func TestMain(m *testing.M) {
	flag.Parse()

	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}

	os.Exit(m.Run())
}

// harness is a world small enough for a test: machines on a network of their own, and nothing of Proxmox VE.
type harness struct {
	*testing.T
	fw       *talos.Firmware
	journal  *journal.Journal
	timeline *timeline.Timeline
	net      [3]byte
	patience time.Duration // of until

	mu     sync.Mutex
	leases map[string]netip.Prefix
	lines  []string // of the consoles
}

func (r *harness) console(node, line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, node+": "+line)
}

// said is what the consoles show.
func (r *harness) said() string {
	r.mu.Lock()
	defer r.mu.Unlock()

	return strings.Join(r.lines, "\n")
}

// networks numbers the networks of harnesses, from anywhere on: no two of this process are the same, and hardly two of
// several.
var networks atomic.Uint32

func init() { networks.Store(rand.Uint32N(1 << 30)) }

// newHarness makes a harness for a test that runs in parallel with others: they wait more than they work.
func newHarness(t *testing.T, change ...func(*talos.Options)) *harness {
	t.Helper()
	t.Parallel()

	return newLonelyRig(t, change...)
}

func newLonelyRig(t *testing.T, change ...func(*talos.Options)) *harness {
	t.Helper()

	r := &harness{
		T: t, journal: &journal.Journal{}, timeline: timeline.New(), leases: map[string]netip.Prefix{},
		patience: 30 * time.Second,
	}

	number := networks.Add(1) % (250 * 256)
	r.net = [3]byte{127, byte(1 + number/256), byte(number % 256)}

	o := talos.Options{Journal: r.journal, Timeline: r.timeline, Lease: r.lease, Log: r.console}

	for _, f := range change {
		f(&o)
	}

	// Released servers take seconds to start, and many times that on a busy machine.
	if o.Upstream != nil {
		r.patience = 3 * time.Minute
	}

	r.fw = talos.New(o)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(strings.Join(r.lines, "\n"))
		} else {
			require.NoError(t, r.journal.Unknown())
		}
	})

	return r
}

func (r *harness) addr(last byte) netip.Addr {
	return netip.AddrFrom4([4]byte{r.net[0], r.net[1], r.net[2], last})
}

func (r *harness) lease(nic machine.NIC) (netip.Prefix, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.leases[nic.MAC]

	return p, ok
}

// vm is a machine of the harness.
type vm struct {
	*harness
	hw  machine.Hardware
	cd  machine.Content
	mu  sync.Mutex
	sys machine.System
}

// machine makes a machine whose address is reserved: number 11 has .11.
func (r *harness) machine(number byte, content machine.Content) *vm {
	r.Helper()

	mac := fmt.Sprintf("BC:24:11:00:00:%02X", number)
	v := &vm{harness: r, hw: machine.Hardware{
		Host: "pve1", VMID: 400 + int(number), Name: fmt.Sprintf("vm-%d", number),
		UUID:  fmt.Sprintf("00000000-0000-4000-8000-0000000000%02x", number),
		Cores: 2, MemoryMiB: 4096, NICs: []machine.NIC{{MAC: mac, Bridge: "vmbr0"}},
		Disks: []*machine.Disk{machine.NewDisk("scsi0", fmt.Sprintf("tank:vm-%d-disk-0", 400+int(number)), 40*gib, content)},
	}}
	r.reserve(v)
	v.hw.Reset = func() { v.off(); v.on() }
	v.hw.Poweroff = v.off
	r.Cleanup(v.off)

	return v
}

// reserve gives a machine its address.
func (r *harness) reserve(v *vm) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leases[v.hw.NICs[0].MAC] = netip.PrefixFrom(r.addr(byte(v.hw.VMID-400)), 24)
}

// on powers the machine on, with what is on its disk first and then what is in its drive.
func (v *vm) on() *vm {
	v.mu.Lock()
	defer v.mu.Unlock()

	v.hw.Boot = nil
	if v.hw.Disks[0].Content() != nil {
		v.hw.Boot = append(v.hw.Boot, machine.BootDevice{Disk: v.hw.Disks[0]})
	}

	if v.cd != nil {
		v.hw.Boot = append(v.hw.Boot, machine.BootDevice{Medium: v.cd})
	}

	v.sys = v.fw.PowerOn(v.hw)

	return v
}

func (v *vm) off() {
	v.mu.Lock()
	defer v.mu.Unlock()

	if v.sys != nil {
		v.sys.Kill()
		v.sys = nil
	}
}

func (v *vm) addr() string { return v.harness.addr(byte(v.hw.VMID - 400)).String() }

func (v *vm) status() talos.Status {
	for _, s := range v.fw.Nodes() {
		if s.VMID == v.hw.VMID {
			return s
		}
	}

	return talos.Status{Stage: "off"}
}

func template() machine.Content { return &talos.Image{Version: talosVersion, Platform: talos.Metal} }

// cluster is what an operator who configures machines has.
type cluster struct {
	*harness
	input *generate.Input
	conf  *clientconfig.Config
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// newBundle makes the secrets of a cluster, as secrets.NewBundle does but for the service account's key: an RSA key
// takes seconds to make.
func newBundle(contract *config.VersionContract) *secrets.Bundle {
	now := time.Now()
	made := func(ca *x509.CertificateAuthority, err error) *x509.PEMEncodedCertificateAndKey {
		must(err)

		return x509.NewCertificateAndKeyFromCertificateAuthority(ca)
	}
	account, err := x509.NewECDSAKey()
	must(err)

	secret := func() string { return base64.StdEncoding.EncodeToString([]byte(fmt.Sprintf("%032x", rand.Uint64()))) }
	token := func() string { return fmt.Sprintf("%06x.%016x", rand.IntN(1<<24), rand.Uint64()) }

	return &secrets.Bundle{
		Clock:      secrets.NewClock(),
		Cluster:    &secrets.Cluster{ID: secret(), Secret: secret()},
		Secrets:    &secrets.Secrets{BootstrapToken: token(), SecretboxEncryptionSecret: secret()},
		TrustdInfo: &secrets.TrustdInfo{Token: token()},
		Certs: &secrets.Certs{
			OS: made(secrets.NewTalosCA(now)), Etcd: made(secrets.NewEtcdCA(now, contract)),
			K8s:               made(secrets.NewKubernetesCA(now, contract)),
			K8sAggregator:     made(secrets.NewAggregatorCA(now, contract)),
			K8sServiceAccount: &x509.PEMEncodedKey{Key: account.GetPrivateKeyPEM()},
		},
	}
}

func (r *harness) cluster(endpoint string, opts ...generate.Option) *cluster {
	r.Helper()

	contract, err := config.ParseContractFromVersion(talosVersion)
	require.NoError(r, err)

	bundle := newBundle(contract)

	in, err := generate.NewInput("lab", "https://"+endpoint+":6443", kubeVersion,
		append([]generate.Option{
			generate.WithVersionContract(contract), generate.WithSecretsBundle(bundle),
			generate.WithInstallDisk("/dev/sda"),
		}, opts...)...)
	require.NoError(r, err)
	conf, err := in.Talosconfig()
	require.NoError(r, err)

	return &cluster{harness: r, input: in, conf: conf}
}

// config renders a machine configuration with a host name.
func (c *cluster) config(role configmachine.Type, hostname string, patches ...string) []byte {
	c.Helper()

	cfg, err := c.input.Config(role)
	require.NoError(c, err)

	patches = append([]string{"apiVersion: v1alpha1\nkind: HostnameConfig\nauto: off\nhostname: " + hostname}, patches...)

	loaded, err := configpatcher.LoadPatches(patches)
	require.NoError(c, err)
	out, err := configpatcher.Apply(configpatcher.WithConfig(cfg), loaded)
	require.NoError(c, err)
	data, err := out.Bytes()
	require.NoError(c, err)

	return data
}

// impatient clients try again at once what a client usually puts off by seconds.
var impatient = client.WithGRPCDialOptions(grpc.WithConnectParams(grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1, MaxDelay: 20 * time.Millisecond},
	MinConnectTimeout: 5 * time.Second,
}))

// insecure is a client of a node in maintenance mode.
func (v *vm) insecure() *client.Client {
	v.Helper()

	c, err := client.New(v.Context(), client.WithTLSConfig(&tls.Config{InsecureSkipVerify: true}),
		client.WithEndpoints(v.addr()), impatient)
	require.NoError(v, err)
	v.Cleanup(func() { _ = c.Close() })

	return c
}

// client is an admin's client that speaks to a machine itself.
func (c *cluster) client(v *vm) *client.Client {
	c.Helper()

	out, err := client.New(c.Context(), client.WithConfig(c.conf), client.WithEndpoints(v.addr()), impatient)
	require.NoError(c, err)
	c.Cleanup(func() { _ = out.Close() })

	return out
}

// apply configures a machine that is, or will soon be, in maintenance mode.
func (c *cluster) apply(v *vm, data []byte) {
	c.Helper()

	api := v.insecure()
	v.until(v.hw.Name+" accepts configuration", func(ctx context.Context) error {
		_, err := api.ApplyConfiguration(ctx, &machineapi.ApplyConfigurationRequest{Data: data})

		return err
	})
}

// bootstrap bootstraps a machine as soon as it lets itself.
func (c *cluster) bootstrap(v *vm) {
	c.Helper()

	api := c.client(v)
	v.until("bootstraps", func(ctx context.Context) error { return api.Bootstrap(ctx, &machineapi.BootstrapRequest{}) })
}

// until waits for something to succeed.
func (r *harness) until(what string, f func(context.Context) error) {
	r.Helper()

	ctx, cancel := context.WithTimeout(r.Context(), r.patience)
	defer cancel()

	for {
		err := f(ctx)
		if err == nil {
			return
		}

		select {
		case <-ctx.Done():
			var nodes []string
			for _, s := range r.fw.Nodes() {
				nodes = append(nodes, fmt.Sprintf("%+v", s))
			}

			r.Fatalf("%s: %v\n%s", what, err, strings.Join(nodes, "\n"))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stage waits for a stage.
func (v *vm) stage(want string) {
	v.Helper()
	v.until(v.hw.Name+" gets to stage "+want, func(context.Context) error {
		if got := v.status().Stage; got != want {
			return fmt.Errorf("it is at stage %s", got)
		}

		return nil
	})
}

// maintained waits until a machine answers in maintenance mode.
func (v *vm) maintained() {
	v.Helper()

	api := v.insecure()
	v.until(v.hw.Name+" answers", func(ctx context.Context) error {
		_, err := api.Disks(ctx)

		return err
	})
}

// kubernetes is a client through the kubeconfig that a node hands out.
func (c *cluster) kubernetes(v *vm) kubernetes.Interface { return c.kubernetesAt(v, "") }

// kubernetesAt asks the API server at an address instead of the cluster's endpoint.
func (c *cluster) kubernetesAt(v *vm, address string) kubernetes.Interface {
	c.Helper()

	data, err := c.client(v).Kubeconfig(c.Context())
	require.NoError(c, err)
	conf, err := clientcmd.RESTConfigFromKubeConfig(data)
	require.NoError(c, err)

	conf.QPS = -1
	if address != "" {
		conf.Host = "https://" + net.JoinHostPort(address, "6443")
	}

	api, err := kubernetes.NewForConfig(conf)
	require.NoError(c, err)

	return api
}

// bootID tells one boot of a machine from another.
func (v *vm) bootID(c *cluster) string {
	v.Helper()

	var id string

	v.until("tells its boot id", func(ctx context.Context) error {
		stream, err := c.client(v).Read(ctx, "/proc/sys/kernel/random/boot_id")
		if err != nil {
			return err
		}
		defer stream.Close()

		data, err := io.ReadAll(stream)
		id = string(data)

		return err
	})

	return id
}

// rebooted waits until a machine has another boot id.
func (v *vm) rebooted(c *cluster, before string) {
	v.Helper()
	v.until("reboots", func(context.Context) error {
		if v.bootID(c) == before {
			return errors.New("the boot id is the same")
		}

		return nil
	})
}

func empty() *emptypb.Empty { return &emptypb.Empty{} }
