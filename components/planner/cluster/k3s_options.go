package cluster

import (
	"strings"

	"github.com/blang/semver/v4"
)

// The options of K3s 1.28 to 1.35 (K3s: pkg/cli/cmds, server.go, agent.go, root.go, log.go and config.go of
// v1.35.0+k3s1; options that were removed since 1.28, and those of later releases that are known, among them).
var (
	// k3sNodeOptions are those of servers and agents.
	k3sNodeOptions = words(`
		airgap-extra-registry alsologtostderr bind-address config container-runtime-endpoint data-dir debug
		default-runtime disable-default-registry-endpoint docker enable-pprof flannel-cni-conf flannel-conf
		flannel-iface image-credential-provider-bin-dir image-credential-provider-config image-service-endpoint
		kube-proxy-arg kubelet-arg lb-server-port log node-external-dns node-external-ip node-internal-dns node-ip
		node-label node-name node-taint nonroot-devices pause-image prefer-bundled-bin private-registry
		protect-kernel-defaults resolv-conf rootless selinux server snapshotter token token-file v vmodule vpn-auth
		vpn-auth-file with-node-id`)
	// k3sServerOptions are those that agents do not have.
	k3sServerOptions = words(`
		advertise-address advertise-port agent-token agent-token-file apiserver-bind-address apiserver-port
		cluster-cidr cluster-dns cluster-domain cluster-init cluster-reset cluster-reset-restore-path
		datastore-cafile datastore-certfile datastore-endpoint datastore-keyfile default-local-storage-path disable
		disable-agent disable-apiserver disable-cloud-controller disable-controller-manager disable-etcd
		disable-helm-controller disable-kube-proxy disable-network-policy disable-scheduler egress-selector-mode
		embedded-registry etcd-arg etcd-disable-snapshots etcd-expose-metrics etcd-s3 etcd-s3-access-key
		etcd-s3-bucket etcd-s3-bucket-lookup-type etcd-s3-config-secret etcd-s3-endpoint etcd-s3-endpoint-ca
		etcd-s3-folder etcd-s3-insecure etcd-s3-proxy etcd-s3-region etcd-s3-retention etcd-s3-secret-key
		etcd-s3-session-token etcd-s3-skip-ssl-verify etcd-s3-timeout etcd-snapshot-compress etcd-snapshot-dir
		etcd-snapshot-name etcd-snapshot-reconcile-interval etcd-snapshot-retention etcd-snapshot-schedule-cron
		flannel-backend flannel-external-ip flannel-ip-masq-disable-random-fully flannel-ipv6-masq
		helm-controller-arg helm-job-image https-listen-port kine-tls kube-apiserver-arg kube-cloud-controller-arg
		kube-cloud-controller-manager-arg kube-controller-arg kube-controller-manager-arg kube-scheduler-arg
		multi-cluster-cidr secrets-encryption secrets-encryption-provider service-cidr service-node-port-range
		servicelb-namespace supervisor-metrics supervisor-port system-default-registry tls-san tls-san-security
		write-kubeconfig write-kubeconfig-group write-kubeconfig-mode`)
	// k3sAgentOptions are those that servers do not have.
	k3sAgentOptions = words(`cluster-secret disable-apiserver-lb disable-selinux no-flannel`)
)

// k3sOwn are the options that the program states itself, with the key to use instead; empty where there is none.
var k3sOwn = map[string]string{
	"token": "k3sToken", "token-file": "k3sToken", "agent-token": "", "agent-token-file": "", "server": "",
	"cluster-init": "", "cluster-reset": "",
	"node-name": "pools.<name>.names", "node-ip": "network.addressing", "node-label": "labels", "node-taint": "taints",
	"disable": "k3s.disable", "disable-default-registry-endpoint": "cluster.registryOptions.<name>.skipFallback",
	"data-dir": "", "config": "", "flannel-backend": "", "cluster-cidr": "k3s.clusterCIDR",
	"service-cidr": "k3s.serviceCIDR", "https-listen-port": "",
	"write-kubeconfig": "", "write-kubeconfig-mode": "",
	"supervisor-port": "", "apiserver-port": "", "with-node-id": "",
	"datastore-endpoint": "", "disable-etcd": "", "disable-agent": "", "disable-apiserver": "",
}

// k3sListed are the releases that came out with v1.35.0+k3s1, by their minor version. Later ones may have more options.
// Minor versions before these have no later releases.
var k3sListed = map[uint64]uint64{31: 14, 32: 11, 33: 7, 34: 3, 35: 0}

const oldestListed, newestListed = 31, 35

func words(text string) []string { return strings.Fields(text) }

// maybeMoreOptions says that a version of Kubernetes is newer than the options above.
func maybeMoreOptions(version string) bool {
	v, err := semver.ParseTolerant(version)

	return err != nil || v.Minor > newestListed || v.Minor >= oldestListed && v.Patch > k3sListed[v.Minor]
}
