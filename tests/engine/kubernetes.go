package engine

import (
	"context"
	"path/filepath"
)

// Kubernetes finds or builds the binary of tests/kubernetes, which is the control plane of Kubernetes and etcd, and
// says which version of Kubernetes that is. It is built as Open builds what it needs.
func Kubernetes(ctx context.Context, o Options) (path, version string, err error) {
	if o.Log == nil {
		o.Log = defaultLog()
	}
	cache, err := cacheDir(o.CacheDir)
	if err != nil {
		return "", "", err
	}
	source, err := findSource(ctx)
	if err != nil {
		return "", "", err
	}
	dir := filepath.Join(source, "tests", "kubernetes")
	version, err = requiredVersion(dir, "k8s.io/kubernetes")
	if err != nil {
		return "", "", err
	}
	b := &builder{cache: cache, log: o.Log}
	root, err := b.build(ctx, artefact{
		name: "kubernetes", binary: "kubernetes", what: "Kubernetes " + version + " and etcd", dir: dir,
		inputs: []string{dir}, target: ".",
		// Without a version the components refuse each other.
		ldflags: "-X k8s.io/component-base/version.gitVersion=" + version,
		minutes: 14,
	})
	return filepath.Join(root, "kubernetes"), version, err
}
