package k3sconfig

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// Identity is what makes a cluster this one and no other: its authorities and its tokens. It is made once and is
// secret. K3s would make it on its first server; made beforehand, it need not be fetched from there (K3s: Using Custom
// CA Certificates).
type Identity struct {
	ServerCA        KeyPair `json:"serverCA"`
	ClientCA        KeyPair `json:"clientCA"`
	RequestHeaderCA KeyPair `json:"requestHeaderCA"`
	EtcdServerCA    KeyPair `json:"etcdServerCA"`
	EtcdPeerCA      KeyPair `json:"etcdPeerCA"`
	// ServiceAccountKey signs the tokens of service accounts, PEM.
	ServiceAccountKey string `json:"serviceAccountKey"`
	// Token is the password of servers, AgentToken that of agents, which can do less.
	Token      string `json:"token"`
	AgentToken string `json:"agentToken"`
	// ClusterCIDR and ServiceCIDR are the networks that the cluster was made with; empty: K3s' own.
	ClusterCIDR string `json:"clusterCIDR,omitempty"`
	ServiceCIDR string `json:"serviceCIDR,omitempty"`
	// SSH is a login of the operator's to the nodes, made whether it is used or not.
	SSH SSHKey `json:"ssh"`
}

// KeyPair is a certificate and its key, PEM.
type KeyPair struct {
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
}

// SSHKey is a key pair as OpenSSH keeps it.
type SSHKey struct {
	Private string `json:"private"`
	// Public is a line of authorized_keys.
	Public string `json:"public"`
}

// lifetime is K3s' own of authorities.
const lifetime = 10 * 365 * 24 * time.Hour

// early admits clocks that are behind.
const early = time.Hour

// NewIdentity makes the identity of a cluster.
func NewIdentity(cluster string, now time.Time) (Identity, error) {
	var (
		i    Identity
		errs []error
	)

	for name, pair := range map[string]*KeyPair{
		"k3s-server": &i.ServerCA, "k3s-client": &i.ClientCA, "k3s-request-header": &i.RequestHeaderCA,
		"etcd-server": &i.EtcdServerCA, "etcd-peer": &i.EtcdPeerCA,
	} {
		var err error
		*pair, err = authority(fmt.Sprintf("%s-ca@%d", name, now.Unix()), now)
		errs = append(errs, err)
	}

	service, err := rsa.GenerateKey(rand.Reader, 2048)
	errs = append(errs, err)

	if service != nil {
		i.ServiceAccountKey = encode("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(service))
	}

	i.SSH, err = sshKey("admin@" + cluster)
	i.Token, i.AgentToken = password(), password()

	return i, errors.Join(append(errs, err)...)
}

// ReadIdentity reads what Text wrote.
func ReadIdentity(text string) (Identity, error) {
	var i Identity

	if json.Unmarshal([]byte(text), &i) != nil || i.ServerCA.Certificate == "" || i.ClientCA.Key == "" {
		return Identity{}, errors.New("the value in the state is not the identity of a K3s cluster")
	}

	return i, nil
}

// Text is the identity as it is kept. It is secret.
func (i Identity) Text() (string, error) {
	text, err := json.Marshal(i)

	return string(text), err
}

// ServerToken is what a server joins with: it holds the servers to the authority, and the server to the password.
func (i Identity) ServerToken() string { return i.full("server", i.Token) }

// JoinToken is what an agent joins with.
func (i Identity) JoinToken() string { return i.full("node", i.AgentToken) }

// full is a token that begins with the hash of the authority, so that who joins knows whom it talks to (K3s: k3s token,
// Secure; clientaccess hashes the file as it is when it holds one certificate).
func (i Identity) full(user, password string) string {
	hash := sha256.Sum256([]byte(i.ServerCA.Certificate))

	return "K10" + hex.EncodeToString(hash[:]) + "::" + user + ":" + password
}

// nodePassword is a node's own. K3s refuses a node of that name that does not have it, and would make up
// another on a machine that is made again.
func (i Identity) nodePassword(name string) string {
	mac := hmac.New(sha256.New, []byte(i.AgentToken))
	mac.Write([]byte("node password " + i.ServerCA.Key + name))

	return hex.EncodeToString(mac.Sum(nil)[:16])
}

func password() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails

	return hex.EncodeToString(b)
}

// authority is a certificate that signs others, and itself.
func authority(name string, now time.Time) (KeyPair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return KeyPair{}, err
	}

	template := &x509.Certificate{
		SerialNumber: big.NewInt(0), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-early).UTC(), NotAfter: now.Add(lifetime).UTC(),
		KeyUsage:              x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		BasicConstraintsValid: true, IsCA: true,
	}

	return sign(template, template, key, key)
}

// sign has an authority issue a certificate for a key.
func sign(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) (KeyPair, error) {
	serial := make([]byte, 16)
	_, _ = rand.Read(serial) // never fails
	serial[0] &= 0x7f

	template.SerialNumber = new(big.Int).SetBytes(serial)

	certificate, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return KeyPair{}, err
	}

	der, err := x509.MarshalECPrivateKey(key)

	return KeyPair{Certificate: encode("CERTIFICATE", certificate), Key: encode("EC PRIVATE KEY", der)}, err
}

func encode(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func sshKey(comment string) (SSHKey, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return SSHKey{}, err
	}

	block, err := ssh.MarshalPrivateKey(private, comment)
	if err != nil {
		return SSHKey{}, err
	}

	half, err := ssh.NewPublicKey(public)
	if err != nil {
		return SSHKey{}, err
	}

	line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(half))) + " " + comment

	return SSHKey{Private: string(pem.EncodeToMemory(block)), Public: line}, nil
}

// K3s takes two other forms of tokens for something else than a password: one that begins with the hash of an authority
// ("K10<hash>::server:<password>"), which has colons, and the bootstrap tokens of Kubernetes.
var (
	passwordForm  = regexp.MustCompile(`^[A-Za-z0-9._~+/=-]{16,}$`)
	bootstrapForm = regexp.MustCompile(`^[a-z0-9]{6}\.[a-z0-9]{16}$`)
)

// CheckToken checks that a token is a password by itself. The error does not quote it.
func CheckToken(token string) error {
	if !passwordForm.MatchString(token) || bootstrapForm.MatchString(token) {
		return errors.New("must be a password of at least 16 letters, digits and . _ ~ + / = -, and no bootstrap token or " +
			"full token of K3s")
	}

	return nil
}
