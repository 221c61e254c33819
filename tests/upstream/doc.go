// Package upstream runs etcd and the control plane of Kubernetes as they are released, on addresses of the loopback
// network: what the lab is compared with. They are the binary of tests/kubernetes, which is built once.
package upstream
