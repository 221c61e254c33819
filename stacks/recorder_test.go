package stacks

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/prototext"
)

// registered is one resource as a program registered it.
type registered struct {
	token    string
	parent   string // name of the parent; empty: the stack
	provider string // name of the provider
	inputs   resource.PropertyMap
	deps     []string // names
	ignored  []string
	hooks    []string
	allHooks string
	replace  []string // names of ReplaceWith
	protect  bool
}

// recorder is a strict Pulumi mock: it knows every resource type and function of this program and refuses all others,
// and two resources of one name.
type recorder struct {
	mu        sync.Mutex
	resources map[string]registered
	refused   []string
}

// kubeconfig is one that can be read. Its texts are no certificates.
const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{ name: c, cluster: { server: "https://10.0.0.11:6443", certificate-authority-data: Q0E= } }]
users: [{ name: admin, user: { client-certificate-data: Q1JU, client-key-data: S0VZ } }]
contexts: [{ name: admin, context: { cluster: c, user: admin } }]
current-context: admin
`

// answers are what the providers would compute, by type.
var computed = map[string]resource.PropertyMap{
	"pulumi:providers:proxmoxve":                          {},
	"pulumi:providers:talos":                              {},
	"talos-proxmox:index:TalosCluster":                    {},
	"talos-proxmox:index:TalosNode":                       {},
	"talos-proxmox:index:GPUWorkerPool":                   {},
	"talos-proxmox:index:K3sCluster":                      {},
	"talos-proxmox:index:K3sNode":                         {},
	"pulumi:index:Stash":                                  {},
	"proxmoxve:Storage/file:File":                         {},
	"proxmoxve:VM/virtualMachine:VirtualMachine":          {},
	"proxmoxve:Network/firewallRules:FirewallRules":       {},
	"proxmoxve:Network/firewallOptions:FirewallOptions":   {},
	"proxmoxve:Download/file:File":                        {},
	"proxmoxve:Hardware/mapping/pci:Pci":                  {},
	"talos:imageFactory/schematic:Schematic":              {},
	"talos:machine/configurationApply:ConfigurationApply": {},
	"talos:cluster/kubeconfig:Kubeconfig":                 {"kubeconfigRaw": resource.NewProperty(kubeconfig)},
	"talos:machine/secrets:Secrets":                       resource.NewPropertyMapFromMap(secretsReply),
}

var secretsReply = map[string]any{
	"clientConfiguration": map[string]any{
		"caCertificate": "CA", "clientCertificate": clientCertificate(),
		"clientKey": "KEY",
	},
	"machineSecrets": map[string]any{
		"certs": map[string]any{
			"etcd": certificate, "k8s": certificate, "k8sAggregator": certificate, "os": certificate,
			"k8sServiceaccount": map[string]any{"key": "K"},
		},
		"cluster":    map[string]any{"id": "ID", "secret": "S"},
		"secrets":    map[string]any{"bootstrapToken": "T", "secretboxEncryptionSecret": "E"},
		"trustdinfo": map[string]any{"token": "T"},
	},
}

// certificateEnd is when the client certificate ends that the mock hands out.
var certificateEnd = time.Date(2031, 5, 4, 3, 2, 1, 0, time.UTC)

// clientCertificate is a certificate as the provider holds it: PEM in base64.
func clientCertificate() string {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}

	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: certificateEnd}

	der, err := x509.CreateCertificate(rand.Reader, c, c, public, private)
	if err != nil {
		panic(err)
	}

	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

var certificate = map[string]any{"cert": "C", "key": "K"}

func (r *recorder) NewResource(args pulumi.MockResourceArgs) (string, resource.PropertyMap, error) {
	r.mu.Lock()
	defer r.mu.Unlock()

	answer, known := computed[args.TypeToken]
	if _, twice := r.resources[args.Name]; !known || twice {
		r.refused = append(r.refused, args.TypeToken+" "+args.Name)

		return "", nil, fmt.Errorf("%s %q: known %t, there already %t", args.TypeToken, args.Name, known, twice)
	}

	rpc := args.RegisterRPC
	r.resources[args.Name] = registered{
		token: args.TypeToken, parent: nameOf(rpc.GetParent()), provider: nameOf(providerURN(args.Provider)),
		inputs: args.Inputs, deps: names(rpc.GetDependencies()), ignored: rpc.GetIgnoreChanges(),
		hooks: rpc.GetHooks().GetBeforeCreate(), allHooks: prototext.Format(rpc.GetHooks()),
		replace: names(rpc.GetReplaceWith()), protect: rpc.GetProtect(),
	}

	outputs := args.Inputs.Copy()
	for k, v := range answer {
		outputs[k] = v
	}

	// A stash hands out what it was given first.
	if given, ok := args.Inputs["input"]; ok && args.TypeToken == "pulumi:index:Stash" {
		outputs["output"] = given
	}

	return args.Name + "-id", outputs, nil
}

func (r *recorder) Call(args pulumi.MockCallArgs) (resource.PropertyMap, error) {
	switch args.Token {
	case "talos:machine/getConfiguration:getConfiguration":
		return resource.PropertyMap{"machineConfiguration": resource.NewProperty("CONFIGURATION of " +
			args.Args["machineType"].StringValue())}, nil
	case "talos:client/getConfiguration:getConfiguration":
		return resource.PropertyMap{"talosConfig": resource.NewProperty("TALOSCONFIG")}, nil
	case "pulumi:pulumi:readStackResourceOutputs":
		return resource.PropertyMap{"outputs": resource.NewProperty(resource.PropertyMap{})}, nil // a new stack
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused = append(r.refused, args.Token)

	return nil, fmt.Errorf("no such function: %s", args.Token)
}

// record runs a program under the recorder and returns what it registered, by name.
func record(t *testing.T, program pulumi.RunFunc) map[string]registered {
	t.Helper()

	r := &recorder{resources: map[string]registered{}}
	require.NoError(t, pulumi.RunErr(program, pulumi.WithMocks("talos-proxmox", "dev", r)))
	require.Empty(t, r.refused)

	return r.resources
}

// nameOf is the last part of a URN; the stack itself has no name here.
func nameOf(urn string) string {
	if urn == "" || strings.Contains(urn, "pulumi:pulumi:Stack") && !strings.Contains(urn, "$") {
		return ""
	}

	return resource.URN(urn).Name()
}

// providerURN cuts the id off a provider reference.
func providerURN(ref string) string {
	urn, _, _ := strings.Cut(ref, "-id")
	if i := strings.LastIndex(ref, "::"); i >= 0 {
		urn = ref[:i]
	}

	return urn
}

func names(urns []string) []string {
	var found []string
	for _, urn := range urns {
		found = append(found, nameOf(urn))
	}

	slices.Sort(found)

	return found
}
