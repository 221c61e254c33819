package manifests

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// ProxmoxLogins are the manifests with which Proxmox CSI and CCM log in to Proxmox VE; empty tokens are left out. They
// are secret.
func ProxmoxLogins(region, url string, insecure bool, csiToken, ccmToken string) (string, error) {
	var objects []runtime.Object

	for _, of := range []struct{ token, name, namespace string }{
		{csiToken, "proxmox-csi-plugin", "csi-proxmox"},
		{ccmToken, "proxmox-cloud-controller-manager", metav1.NamespaceSystem},
	} {
		if of.token == "" {
			continue
		}

		id, secret, _ := strings.Cut(of.token, "=")

		login, err := yaml.Marshal(map[string]any{"clusters": []any{map[string]any{
			"url": url, "insecure": insecure, "token_id": id, "token_secret": secret, "region": region,
		}}})
		if err != nil {
			return "", err
		}

		if of.namespace != metav1.NamespaceSystem {
			objects = append(objects, &corev1.Namespace{
				TypeMeta: typeOf("v1", "Namespace"),
				ObjectMeta: metav1.ObjectMeta{
					Name: of.namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"},
				},
			})
		}

		objects = append(objects, &corev1.Secret{
			TypeMeta:   typeOf("v1", "Secret"),
			ObjectMeta: metav1.ObjectMeta{Name: of.name, Namespace: of.namespace},
			StringData: map[string]string{"config.yaml": string(login)},
		})
	}

	return encode(objects)
}
