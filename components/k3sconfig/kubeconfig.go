package k3sconfig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"time"

	api "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"
)

// Renewal is how an administrator's certificate is kept good: it lasts for a year, and a new one is made when a half of
// the calendar year has passed, so that it never has less than half a year left when an update ends.
const certificateYear = 366 * 24 * time.Hour

// Term names the half of the year that a moment lies in, "2026-2": while it is the same, a certificate stays.
func Term(now time.Time) string {
	half := "1"
	if now.UTC().Month() > time.June {
		half = "2"
	}

	return now.UTC().Format("2006-") + half
}

// Administrator makes the client certificate of an administrator, as text that ReadAdministrator reads. It is secret.
func (i Identity) Administrator(now time.Time) (string, error) {
	pair, err := i.administrator(now)
	if err != nil {
		return "", err
	}

	text, err := json.Marshal(pair)

	return string(text), err
}

func (i Identity) administrator(now time.Time) (KeyPair, error) {
	parent, signer, err := i.ClientCA.parse()
	if err != nil {
		return KeyPair{}, err
	}

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return KeyPair{}, err
	}

	return sign(&x509.Certificate{
		// As K3s calls its own (K3s: pkg/daemons/control/deps).
		Subject:   pkix.Name{CommonName: "system:admin", Organization: []string{"system:masters"}},
		NotBefore: now.Add(-early).UTC(), NotAfter: now.Add(certificateYear).UTC(),
		KeyUsage:    x509.KeyUsageKeyEncipherment | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, parent, key, signer)
}

// ReadAdministrator reads what Administrator wrote.
func ReadAdministrator(text string) (KeyPair, error) {
	var pair KeyPair
	if json.Unmarshal([]byte(text), &pair) != nil || pair.Certificate == "" || pair.Key == "" {
		return KeyPair{}, errors.New("the value in the state is not an administrator's certificate")
	}

	return pair, nil
}

func (p KeyPair) parse() (*x509.Certificate, *ecdsa.PrivateKey, error) {
	certificate, _ := pem.Decode([]byte(p.Certificate))
	key, _ := pem.Decode([]byte(p.Key))

	if certificate == nil || key == nil {
		return nil, nil, errors.New("an authority of the cluster is not PEM")
	}

	c, err := x509.ParseCertificate(certificate.Bytes)
	if err != nil {
		return nil, nil, errors.New("an authority's certificate cannot be read")
	}

	k, err := x509.ParseECPrivateKey(key.Bytes)
	if err != nil {
		return nil, nil, errors.New("an authority's key cannot be read")
	}

	return c, k, nil
}

// NotAfter is when the certificate ends, as RFC 3339 writes it.
func (p KeyPair) NotAfter() (string, error) {
	block, _ := pem.Decode([]byte(p.Certificate))
	if block == nil {
		return "", errors.New("a client certificate is not PEM")
	}

	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", errors.New("a client certificate cannot be read")
	}

	return c.NotAfter.UTC().Format(time.RFC3339), nil
}

// Kubeconfig is an administrator's, for the API at an endpoint. It is secret.
func (i Identity) Kubeconfig(cluster, endpoint string, administrator KeyPair) (string, error) {
	user := "admin@" + cluster
	text, err := yaml.Marshal(api.Config{
		Kind: "Config", APIVersion: "v1", CurrentContext: user,
		Clusters: []api.NamedCluster{{
			Name:    cluster,
			Cluster: api.Cluster{Server: endpoint, CertificateAuthorityData: []byte(i.ServerCA.Certificate)},
		}},
		AuthInfos: []api.NamedAuthInfo{{Name: user, AuthInfo: api.AuthInfo{
			ClientCertificateData: []byte(administrator.Certificate), ClientKeyData: []byte(administrator.Key),
		}}},
		Contexts: []api.NamedContext{{
			Name:    user,
			Context: api.Context{Cluster: cluster, AuthInfo: user, Namespace: "default"},
		}},
	})

	return string(text), err
}
