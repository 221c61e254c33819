package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"talos-proxmox/tests/lab/journal"
	"talos-proxmox/tests/lab/kube"
	"talos-proxmox/tests/upstream"
)

// The users of a side, by what the scenarios call them.
const (
	admin     = "admin"
	guest     = "guest"
	anonymous = "anonymous" // without credentials
	joining   = "joining"   // with the bootstrap token
)

// bootstrapToken is what machines join with.
const bootstrapToken = "abcdef.0123456789abcdef"

// node is the user of a node's kubelet.
func node(name string) string { return "node " + name }

// side is one of the two API servers that are compared.
type side struct {
	*testing.T
	name    string // real, lab
	address string
	pki     upstream.PKI
	users   map[string]*http.Client
	tape    []entry
}

// entry is one answer on a tape.
type entry struct {
	label string
	facts map[string]string
}

func newSide(t *testing.T, name, address string, pki upstream.PKI) *side {
	return &side{T: t, name: name, address: address, pki: pki, users: map[string]*http.Client{}}
}

// config is that of a user.
func (s *side) config(user string) *rest.Config {
	s.Helper()

	var (
		c   *rest.Config
		err error
	)

	kubelet, isNode := strings.CutPrefix(user, "node ")

	switch {
	case isNode:
		c, err = s.pki.Config(s.address, "system:node:"+kubelet, "system:nodes")
	case user == admin:
		c, err = s.pki.Config(s.address, user, "system:masters")
	default:
		c, err = s.pki.Config(s.address, user, "guests")
	}

	require.NoError(s, err)

	if user == anonymous || user == joining {
		c.CertData, c.KeyData = nil, nil
	}

	if user == joining {
		c.BearerToken = bootstrapToken
	}

	return c
}

// kubeconfig is the configuration of the admin.
func (s *side) kubeconfig() []byte {
	s.Helper()

	raw, err := upstream.Kubeconfig(s.config(admin))
	require.NoError(s, err)

	return raw
}

// answer is what a request is answered with.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

// object is the body.
func (a answer) object() map[string]any {
	var out map[string]any

	_ = json.Unmarshal(a.body, &out) // nil is no object

	return out
}

// at is a value of the body, empty when it has none there.
func (a answer) at(path ...string) string { return text(a.object(), path...) }

func text(object any, path ...string) string {
	for _, p := range path {
		m, _ := object.(map[string]any)
		object = m[p]
	}

	if object == nil {
		return ""
	}

	return fmt.Sprint(object)
}

// patches are the content types of patches by the method that scenarios write.
var patches = map[string]string{
	"MERGE": "application/merge-patch+json", "STRATEGIC": "application/strategic-merge-patch+json",
	"JSONPATCH": "application/json-patch+json", "APPLY": "application/apply-patch+yaml",
	"PATCH": "application/unknown",
}

// send sends a request. The body is JSON or YAML. Headers are written "Name: value".
func (s *side) send(user, method, path, body string, headers ...string) answer {
	s.Helper()

	client := s.users[user]
	if client == nil {
		var err error
		client, err = rest.HTTPClientFor(s.config(user))
		require.NoError(s, err)

		s.users[user] = client
	}

	var sent []byte

	if body != "" {
		var err error
		sent, err = yaml.YAMLToJSON([]byte(body))
		require.NoError(s, err, "%s", body)
	}

	content := "application/json"
	if patch, ok := patches[method]; ok {
		content, method = patch, http.MethodPatch
	}

	ctx, cancel := context.WithTimeout(s.Context(), 30*time.Second)
	defer cancel()

	url := fmt.Sprintf("https://%s:%d%s", s.address, upstream.Port, path)

	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(sent))
	require.NoError(s, err)
	r.Header.Set("Accept", "application/json")

	if len(sent) > 0 {
		r.Header.Set("Content-Type", content)
	}

	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}

	res, err := client.Do(r)
	require.NoError(s, err, "%s: %s %s", s.name, method, path)
	defer res.Body.Close()

	raw, err := io.ReadAll(res.Body)
	require.NoError(s, err)

	return answer{res.StatusCode, res.Header, raw}
}

// do sends a request whose answer is compared.
func (s *side) do(label, user, method, path, body string, headers ...string) answer {
	s.Helper()

	a := s.send(user, method, path, body, headers...)
	s.record(label, a)

	return a
}

// known is do for an object that was made a moment ago: NodeRestriction looks for it in a cache, and does not find it for
// a while.
func (s *side) known(label, user, method, path, body string) {
	s.Helper()

	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if a := s.send(user, method, path, body); a.code != http.StatusNotFound || time.Since(began) > time.Minute {
			s.record(label, a)

			return
		}
	}
}

// must sends a request that has to succeed, and is not compared.
func (s *side) must(user, method, path, body string) answer {
	s.Helper()

	a := s.send(user, method, path, body)
	require.Less(s, a.code, 300, "%s: %s %s: %s", s.name, method, path, a.body)

	return a
}

// until waits until what is at a path is as it should be.
func (s *side) until(path string, ok func(answer) bool) answer {
	s.Helper()

	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		a := s.send(admin, http.MethodGet, path, "")
		if ok(a) {
			return a
		}

		if time.Since(began) > time.Minute {
			s.Fatalf("%s: %s: %s", s.name, path, a.body)
		}
	}
}

// gone waits until there is nothing at a path.
func (s *side) gone(path string) {
	s.Helper()
	s.until(path, func(a answer) bool { return a.code == http.StatusNotFound })
}

// note puts a text on the tape.
func (s *side) note(label, value string) {
	s.tape = append(s.tape, entry{label, map[string]string{"": s.plain(value)}})
}

// fault puts an error on the tape.
func (s *side) fault(label string, err error) {
	if err == nil {
		s.note(label, "no error")
	} else {
		s.note(label, err.Error())
	}
}

// address is one of the loopback network whose port of Kubernetes is unused.
func address(t *testing.T) string {
	t.Helper()

	for range 100 {
		a := netip.AddrFrom4([4]byte{127, byte(252 + rand.IntN(3)), byte(rand.IntN(256)), byte(1 + rand.IntN(250))}).String()
		if l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", a, upstream.Port)); err == nil {
			require.NoError(t, l.Close())

			return a
		}
	}

	t.Fatal("no address is free")

	return ""
}

// real starts the control plane of Kubernetes.
func real(t *testing.T, binary *upstream.Binary, pki upstream.PKI) *side {
	t.Helper()

	s := newSide(t, "real", address(t), pki)
	began := time.Now()

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	c, err := binary.StartControlPlane(ctx, t.TempDir(), s.address, pki)
	require.NoError(t, err)

	t.Logf("the control plane is ready after %s", time.Since(began).Round(100*time.Millisecond))
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.Logs())
		}

		c.Stop()
		t.Log(c.Costs())
	})

	return s
}

// lab starts the API server of the lab.
func lab(t *testing.T, version string, pki upstream.PKI) (*side, *journal.Journal) {
	t.Helper()

	s := newSide(t, "lab", address(t), pki)
	j := &journal.Journal{}
	cluster := kube.NewCluster()
	id, secret, _ := strings.Cut(bootstrapToken, ".")

	require.NoError(t, cluster.Apply(kube.Manifests{
		CA: pki.Server, TokenID: id, TokenSecret: secret,
		APIServerIP: netip.MustParseAddr("10.96.0.1"), DNSIP: netip.MustParseAddr("10.96.0.10"),
	}))

	srv, err := kube.NewServer(kube.ServerConfig{
		Node: "cp", Cluster: cluster, Version: version, CA: pki.Server, Names: []string{s.address, "kubernetes"},
		Journal: j, Healthy: func() error { return nil },
	})
	require.NoError(t, err)
	t.Cleanup(srv.Close)

	l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", s.address, upstream.Port))
	require.NoError(t, err)
	srv.Listen(l)

	return s, j
}

var capacity = corev1.ResourceList{
	corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"),
	corev1.ResourcePods: resource.MustParse("110"),
}

// kubelet is the lab's, which joins both.
func (s *side) kubelet(name string, change ...func(*kube.Kubelet)) *kube.Kubelet {
	k := &kube.Kubelet{
		Servers: []string{fmt.Sprintf("https://%s:%d", s.address, upstream.Port)}, CA: s.pki.Server.Crt,
		Token: bootstrapToken,
		Node: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}},
			Status: corev1.NodeStatus{
				Addresses: []corev1.NodeAddress{
					{Type: corev1.NodeInternalIP, Address: "10.5.0.9"}, {Type: corev1.NodeHostName, Address: name},
				},
				Capacity: capacity, Allocatable: capacity,
				NodeInfo: corev1.NodeSystemInfo{
					KubeletVersion: "v1.37.2", OSImage: "Talos (v1.14.1)", KernelVersion: "6.18.1-talos",
					ContainerRuntimeVersion: "containerd://2.2.0", OperatingSystem: "linux", Architecture: "amd64",
					BootID: "b", MachineID: "m", SystemUUID: "u",
				},
			},
		},
	}
	for _, c := range change {
		c(k)
	}

	return k
}

// join joins a node, whose pods run from now on.
func (s *side) join(name string, change ...func(*kube.Kubelet)) *kube.Kubelet {
	s.Helper()

	k := s.kubelet(name, change...)

	// A machine tries again, as kubelets do: NodeRestriction looks for the owner of a mirror pod in a cache, which may not
	// have a node that registered a moment ago, and controllers write to nodes and pods, too.
	require.EventuallyWithT(s, func(c *assert.CollectT) {
		require.NoError(c, k.Join(s.Context()), s.name)
		require.NoError(c, k.Report(s.Context(), true, ""), s.name)
	}, time.Minute, 50*time.Millisecond)

	if s.name == "real" {
		go func() {
			for s.Context().Err() == nil {
				_ = k.RunPods(s.Context(), func() bool { return true }) // what fails is tried again
			}
		}()
	}

	return k
}
