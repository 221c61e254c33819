package machineconfig

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	stdx509 "crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"
	"github.com/siderolabs/crypto/x509"
	talosconfig "github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"go.yaml.in/yaml/v4"

	"talos-proxmox/components/machineconfig/encode"
)

// Secrets are the machine secrets of a cluster in the form that the talos provider has them: PEM in base64. All of it
// is secret.
type Secrets struct {
	ClusterID, ClusterSecret string
	BootstrapToken           string
	// One of the two is empty: old clusters encrypt with AES-CBC.
	SecretboxEncryptionSecret, AESCBCEncryptionSecret string
	TrustdToken                                       string
	Etcd, Kubernetes, Aggregator, OS                  KeyPair
	ServiceAccountKey                                 string
}

// KeyPair is a certificate with its key, each PEM in base64.
type KeyPair struct{ Certificate, Key string }

// Client are the credentials of an administrator of Talos, each PEM in base64.
type Client struct{ CA, Certificate, Key string }

// ReadSecrets reads a secrets bundle as "talosctl gen secrets" writes it. Its errors tell keys of the bundle and
// nothing of what they hold.
func ReadSecrets(text string) (Secrets, error) {
	bundle, err := readBundle(text)
	if err != nil {
		return Secrets{}, err
	}

	pair := func(p *x509.PEMEncodedCertificateAndKey) KeyPair { return KeyPair{encoded(p.Crt), encoded(p.Key)} }
	c := bundle.Certs

	return Secrets{
		ClusterID: bundle.Cluster.ID, ClusterSecret: bundle.Cluster.Secret, BootstrapToken: bundle.Secrets.BootstrapToken,
		SecretboxEncryptionSecret: bundle.Secrets.SecretboxEncryptionSecret,
		AESCBCEncryptionSecret:    bundle.Secrets.AESCBCEncryptionSecret,
		TrustdToken:               bundle.TrustdInfo.Token, Etcd: pair(c.Etcd), Kubernetes: pair(c.K8s),
		Aggregator: pair(c.K8sAggregator), OS: pair(c.OS),
		ServiceAccountKey: encoded(c.K8sServiceAccount.Key),
	}, nil
}

// EtcdEncryption is the configuration patch that tells control planes with what etcd's content is encrypted: one of the
// two secrets is empty. Talos generates the newer one only, and a cluster that has the older one could not read what it
// wrote. The patch is secret.
func EtcdEncryption(secretbox, aesCBC string) (string, error) {
	return encode.Document(&v1alpha1.Config{ConfigVersion: "v1alpha1", ClusterConfig: &v1alpha1.ClusterConfig{
		ClusterSecretboxEncryptionSecret: secretbox, ClusterAESCBCEncryptionSecret: aesCBC,
	}})
}

// ThrowAwaySecrets are a secrets bundle that belongs to no cluster, where one must stand for a cluster's own. It is the
// same within a process.
func ThrowAwaySecrets() (string, error) {
	bundle, err := throwAway()
	if err != nil {
		return "", err
	}

	text, err := yaml.Marshal(bundle)

	return string(text), err
}

func encoded(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func readBundle(text string) (*secrets.Bundle, error) {
	decoder := yaml.NewDecoder(strings.NewReader(text))
	decoder.KnownFields(true)

	bundle := &secrets.Bundle{Clock: secrets.NewClock()}

	// What YAML says of it may quote it.
	if err := decoder.Decode(bundle); err != nil {
		return nil, errors.New("it is not a secrets bundle as talosctl gen secrets writes it")
	}

	var (
		listed *multierror.Error
		wrong  []string
	)

	err := bundle.Validate(talosconfig.TalosVersionCurrent)
	if err == nil {
		return bundle, nil
	}

	if !errors.As(err, &listed) {
		listed = multierror.Append(nil, err)
	}

	for _, e := range multierror.Flatten(listed).(*multierror.Error).Errors { //nolint:errorlint,forcetypeassert // it returns nothing else
		rule, _, _ := strings.Cut(e.Error(), ": ")
		wrong = append(wrong, rule)
	}

	return nil, errors.New(strings.Join(wrong, "; "))
}

// How long the credentials of a cluster that was taken over are good, and how often there are new ones.
const (
	clientTTL    = 365 * 24 * time.Hour
	clientWindow = 90 * 24 * time.Hour
)

// Client makes an administrator's credentials from the machine CA. Nothing keeps them between two runs, so both key and
// certificate follow from the CA and the time: they are the same within a window of 90 days and good for 275 days at
// least. Who could tell the key has the CA's, and needs none.
func (s Secrets) Client(now time.Time) (Client, error) {
	bad := errors.New("certs.os must be an Ed25519 certificate authority, as Talos creates it")

	ca, key, err := s.authority()
	if err != nil {
		return Client{}, bad
	}

	start := now.UTC().Truncate(clientWindow)

	derived, err := hkdf.Key(sha256.New, key.Seed(), nil, fmt.Sprintf("administrator of Talos %d", start.Unix()),
		ed25519.SeedSize+16)
	if err != nil {
		return Client{}, err
	}

	own := ed25519.NewKeyFromSeed(derived[:ed25519.SeedSize])
	template := &stdx509.Certificate{
		SerialNumber: new(big.Int).SetBytes(derived[ed25519.SeedSize:]),
		Subject:      pkix.Name{Organization: []string{string(role.Admin)}},
		NotBefore:    start, NotAfter: start.Add(clientTTL),
		KeyUsage:    stdx509.KeyUsageDigitalSignature,
		ExtKeyUsage: []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth},
	}

	der, err := stdx509.CreateCertificate(nil, template, ca, own.Public(), key)
	if err != nil {
		return Client{}, bad
	}

	pkcs8, err := stdx509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		return Client{}, err
	}

	return Client{
		CA:          s.OS.Certificate,
		Certificate: encoded(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		Key:         encoded(pem.EncodeToMemory(&pem.Block{Type: "ED25519 PRIVATE KEY", Bytes: pkcs8})),
	}, nil
}

// authority is the machine CA.
func (s Secrets) authority() (*stdx509.Certificate, ed25519.PrivateKey, error) {
	crt, err1 := base64.StdEncoding.DecodeString(s.OS.Certificate)
	key, err2 := base64.StdEncoding.DecodeString(s.OS.Key)

	if err := errors.Join(err1, err2); err != nil {
		return nil, nil, err
	}

	pair := &x509.PEMEncodedCertificateAndKey{Crt: crt, Key: key}

	ca, err := pair.GetCert()
	if err != nil {
		return nil, nil, err
	}

	block, _ := pem.Decode(key)
	if block == nil {
		return nil, nil, errors.New("no PEM")
	}

	parsed, err := stdx509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, nil, err
	}

	private, ok := parsed.(ed25519.PrivateKey)
	if !ok || !bytes.Equal(private.Public().(ed25519.PublicKey), publicKey(ca)) { //nolint:forcetypeassert // of an Ed25519 key
		return nil, nil, errors.New("the key does not belong to the certificate")
	}

	return ca, private, nil
}

func publicKey(ca *stdx509.Certificate) ed25519.PublicKey {
	key, _ := ca.PublicKey.(ed25519.PublicKey)

	return key
}
