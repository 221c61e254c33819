package k3sconfig

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"talos-proxmox/components/plan"
)

// maxServerFiles bounds what an archive of a server's files may hold.
const maxServerFiles = 1 << 20

// ReadServerFiles reads the identity of a cluster from the files of a server: a compressed tar archive in base64 of the
// directory /var/lib/rancher/k3s/server, with its tokens and authorities. Its errors name files and nothing of what
// they hold. The SSH key is not among them.
func ReadServerFiles(text string) (Identity, error) {
	files, err := unpack(text)
	if err != nil {
		return Identity{}, err
	}

	var (
		i     Identity
		wrong []string
	)

	for name, pair := range map[string]*KeyPair{
		"server-ca": &i.ServerCA, "client-ca": &i.ClientCA, "request-header-ca": &i.RequestHeaderCA,
		"etcd/server-ca": &i.EtcdServerCA, "etcd/peer-ca": &i.EtcdPeerCA,
	} {
		*pair = KeyPair{files["tls/"+name+".crt"], files["tls/"+name+".key"]}

		if _, err := tls.X509KeyPair([]byte(pair.Certificate), []byte(pair.Key)); err != nil {
			wrong = append(wrong, fmt.Sprintf("tls/%s.crt and .key are not a certificate with its key", name))
		} else if !pair.ofK3s() {
			wrong = append(wrong, fmt.Sprintf("tls/%s.crt and .key are not one certificate with an elliptic curve key, as K3s "+
				"makes them: a cluster with authorities of its operator's cannot be imported", name))
		}
	}

	if i.ServiceAccountKey = files["tls/service.key"]; !strings.Contains(i.ServiceAccountKey, "PRIVATE KEY") {
		wrong = append(wrong, "tls/service.key is not a private key")
	}

	for name, password := range map[string]*string{"token": &i.Token, "agent-token": &i.AgentToken} {
		// K10<hash>::<user>:<password>
		_, full, _ := strings.Cut(strings.TrimSpace(files[name]), "::")
		if _, *password, _ = strings.Cut(full, ":"); *password == "" {
			wrong = append(wrong, name+" is not the token of a server")
		}
	}

	if len(wrong) > 0 {
		slices.Sort(wrong)

		return Identity{}, errors.New(strings.Join(wrong, ", "))
	}

	return i, nil
}

// ofK3s says that an authority is as K3s makes them. It computes tokens of others in another way, and their keys have
// other forms.
func (p KeyPair) ofK3s() bool {
	_, _, err := p.parse()

	return err == nil && strings.Count(p.Certificate, "-----BEGIN CERTIFICATE-----") == 1
}

func unpack(text string) (map[string]string, error) {
	wrong := errors.New("it is not a compressed tar archive in base64")

	data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		return nil, wrong
	}

	compressed, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, wrong
	}

	files := map[string]string{}

	for archive := tar.NewReader(io.LimitReader(compressed, maxServerFiles)); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}

		var content []byte
		if err == nil {
			content, err = io.ReadAll(archive)
		}

		if err != nil {
			return nil, wrong
		}

		files[strings.TrimPrefix(header.Name, "./")] = string(content)
	}
}

// Same says whether the identity is of the same cluster as another, which a server's files tell.
func (i Identity) Same(other Identity) bool {
	i.SSH, i.ClusterCIDR, i.ServiceCIDR = other.SSH, other.ClusterCIDR, other.ServiceCIDR

	return i == other
}

// Networks are those of pods and services that the cluster was made with.
func (i Identity) Networks() (pods, services string) {
	return cmp.Or(i.ClusterCIDR, plan.K3sPods.String()), cmp.Or(i.ServiceCIDR, plan.K3sServices.String())
}
