package machineconfig

import (
	"crypto/ed25519"
	"crypto/tls"
	stdx509 "crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/crypto/x509"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/spec"
)

// bundled is a secrets bundle as talosctl writes one. The contract asked for is one without an RSA key, which takes a
// second.
func bundled(t *testing.T, change func(*secrets.Bundle)) (*secrets.Bundle, string) {
	t.Helper()

	bundle, err := secrets.NewBundle(secrets.NewFixedClock(time.Now()), talosconfig.TalosVersion1_3)
	if err != nil {
		t.Fatal(err)
	}

	change(bundle)

	text, err := yaml.Marshal(bundle)
	if err != nil {
		t.Fatal(err)
	}

	return bundle, string(text)
}

// TestReadSecrets: every secret arrives where the provider wants it.
func TestReadSecrets(t *testing.T) {
	bundle, text := bundled(t, func(*secrets.Bundle) {})

	got, err := ReadSecrets(text)
	if err != nil {
		t.Fatal(err)
	}

	pair := func(p *x509.PEMEncodedCertificateAndKey) KeyPair {
		return KeyPair{base64.StdEncoding.EncodeToString(p.Crt), base64.StdEncoding.EncodeToString(p.Key)}
	}

	want := Secrets{
		ClusterID: bundle.Cluster.ID, ClusterSecret: bundle.Cluster.Secret, BootstrapToken: bundle.Secrets.BootstrapToken,
		SecretboxEncryptionSecret: bundle.Secrets.SecretboxEncryptionSecret, TrustdToken: bundle.TrustdInfo.Token,
		Etcd: pair(bundle.Certs.Etcd), Kubernetes: pair(bundle.Certs.K8s), Aggregator: pair(bundle.Certs.K8sAggregator),
		OS:                pair(bundle.Certs.OS),
		ServiceAccountKey: base64.StdEncoding.EncodeToString(bundle.Certs.K8sServiceAccount.Key),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestEtcdEncryption: for each version, a control plane has the one secret that its cluster has.
func TestEtcdEncryption(t *testing.T) {
	for _, versions := range []spec.Versions{plantest.Talos111, plantest.Talos112} {
		p := plantest.New(t, patched(versions, "", "", ""))

		for _, want := range [][2]string{{"new", ""}, {"", "old"}} {
			patch, err := EtcdEncryption(want[0], want[1])
			if err != nil {
				t.Fatal(err)
			}

			// As Talos generates it for an old cluster: without the newer secret.
			generated := fullConfiguration(t, p, p.Pools[0].Nodes[0]).RawV1Alpha1().DeepCopy()
			generated.ClusterConfig.ClusterSecretboxEncryptionSecret = ""

			cfg, err := container.New(generated)
			if err != nil {
				t.Fatal(err)
			}

			patchedCfg, err := applyPatch(cfg, patch)
			if err != nil {
				t.Fatal(err)
			}

			if c := patchedCfg.Cluster(); c.SecretboxEncryptionSecret() != want[0] || c.AESCBCEncryptionSecret() != want[1] {
				t.Errorf("%s: got %q and %q", versions.Talos, c.SecretboxEncryptionSecret(), c.AESCBCEncryptionSecret())
			}

			if _, err := validate(patchedCfg); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestThrowAwaySecrets: they are a whole bundle.
func TestThrowAwaySecrets(t *testing.T) {
	text, err := ThrowAwaySecrets()
	if err != nil {
		t.Fatal(err)
	}

	s, err := ReadSecrets(text)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := s.Client(time.Now()); err != nil {
		t.Error(err)
	}
}

// TestInvalidSecrets: what is wrong is named, and nothing is shown.
func TestInvalidSecrets(t *testing.T) {
	const no = "it is not a secrets bundle as talosctl gen secrets writes it"

	of := func(change func(*secrets.Bundle)) string {
		_, text := bundled(t, change)

		return text
	}

	for name, test := range map[string]struct{ text, want string }{
		"no YAML":      {"hunter2: [", no},
		"a text":       {"hunter2", no},
		"another file": {"version: v1alpha1\nmachine: {token: hunter2}\n", no},
		"a wrong type": {"cluster: [hunter2]\n", no},
		"nothing":      {"", no},
		"an empty bundle": {
			"cluster: {id: hunter2}\n",
			"cluster.secret is required; secrets is required; trustdinfo is required; certs is required",
		},
		"no key":         {of(func(b *secrets.Bundle) { b.Certs.Etcd.Key = nil }), "certs.etcd is invalid"},
		"no certificate": {of(func(b *secrets.Bundle) { b.Certs.K8s.Crt = []byte("hunter2") }), "certs.k8s is invalid"},
		"no token":       {of(func(b *secrets.Bundle) { b.TrustdInfo.Token = "" }), "trustdinfo.token is required"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ReadSecrets(test.text); err == nil || err.Error() != test.want {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

// TestClient: the credentials are an administrator's, signed by the machine CA, the same for a while and new in time.
func TestClient(t *testing.T) {
	_, text := bundled(t, func(*secrets.Bundle) {})

	s, err := ReadSecrets(text)
	if err != nil {
		t.Fatal(err)
	}

	now := time.Now()

	client := func(at time.Time) Client {
		c, err := s.Client(at)
		if err != nil {
			t.Fatal(err)
		}

		return c
	}

	decoded := func(text string) []byte {
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}

		return b
	}

	c := client(now)

	pair, err := tls.X509KeyPair(decoded(c.Certificate), decoded(c.Key))
	if err != nil {
		t.Fatal(err)
	}

	pool := stdx509.NewCertPool()
	if !pool.AppendCertsFromPEM(decoded(c.CA)) {
		t.Fatal("no CA")
	}

	if _, err := pair.Leaf.Verify(stdx509.VerifyOptions{
		Roots: pool, KeyUsages: []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth},
	}); err != nil {
		t.Error(err)
	}

	if diff := cmp.Diff([]string{"os:admin"}, pair.Leaf.Subject.Organization); diff != "" {
		t.Error(diff)
	}

	if left := pair.Leaf.NotAfter.Sub(now); left < 275*24*time.Hour || left > 365*24*time.Hour ||
		pair.Leaf.NotBefore.After(now) {
		t.Errorf("good from %s until %s", pair.Leaf.NotBefore, pair.Leaf.NotAfter)
	}

	start := pair.Leaf.NotBefore
	if client(start) != c || client(start.Add(clientWindow-time.Second)) != c {
		t.Error("they are not the same within a window")
	}

	if later := client(start.Add(clientWindow)); later.Certificate == c.Certificate || later.Key == c.Key {
		t.Error("they are not new after it")
	}

	// Talos reads keys of that form only.
	if block, _ := pem.Decode(decoded(c.Key)); block.Type != "ED25519 PRIVATE KEY" {
		t.Error(block.Type)
	}

	if _, ok := pair.PrivateKey.(ed25519.PrivateKey); !ok {
		t.Errorf("%T", pair.PrivateKey)
	}
}

// TestClientOfAnotherCA: a CA that Talos does not make is refused without showing it.
func TestClientOfAnotherCA(t *testing.T) {
	_, text := bundled(t, func(b *secrets.Bundle) { b.Certs.OS = b.Certs.Etcd })

	s, err := ReadSecrets(text)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := s.Client(time.Now()); err == nil ||
		err.Error() != "certs.os must be an Ed25519 certificate authority, as Talos creates it" {
		t.Error(err)
	}
}
