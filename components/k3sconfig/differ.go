package k3sconfig

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"talos-proxmox/components/cloudinit"
)

// Differ says what a node was told otherwise than it would be told now, in the words of the configuration. The version
// is no part of it, and neither are labels, taints, and addresses of servers that came later.
func Differ(then, now string) []string {
	var before, after cloudinit.Config

	if yaml.Unmarshal([]byte(then), &before) != nil || yaml.Unmarshal([]byte(now), &after) != nil {
		return nil
	}

	var found []string

	b, a := settings(before), settings(after)

	// The first server is told by another way.
	if _, there := a["server"]; !there {
		delete(b, "server")
	}

	for key := range b {
		if _, there := a[key]; !there {
			a[key] = nil
		}
	}

	for key, value := range a {
		if !reflect.DeepEqual(b[key], value) {
			found = append(found, key)
		}
	}

	slices.Sort(found)

	if !reflect.DeepEqual(before.Users, after.Users) {
		found = append(found, "users and SSH keys")
	}

	if !slices.Equal(before.Packages, after.Packages) {
		found = append(found, "packages")
	}

	if !slices.Equal(filesIn(before, registriesFile, registriesDir), filesIn(after, registriesFile, registriesDir)) {
		found = append(found, "registries")
	}

	if !slices.Equal(filesIn(before, apiServerDir), filesIn(after, apiServerDir)) {
		found = append(found, "API server")
	}

	// Servers once got manifests as files, which K3s deploys again when it starts.
	if len(filesIn(before, manifestsDir)) > 0 {
		found = append(found, "files in "+manifestsDir+", which are to be deleted")
	}

	if proxyOf(before) != proxyOf(after) {
		found = append(found, "proxy")
	}

	if !reflect.DeepEqual(before.CACerts, after.CACerts) {
		found = append(found, "certificate authorities")
	}

	return found
}

// filesIn are the files of a name, or of a directory.
func filesIn(c cloudinit.Config, names ...string) []cloudinit.File {
	return slices.DeleteFunc(slices.Clone(c.Files), func(f cloudinit.File) bool {
		return !slices.ContainsFunc(names, func(name string) bool {
			return f.Path == name || strings.HasSuffix(name, "/") && strings.HasPrefix(f.Path, name)
		})
	})
}

// content is what a file holds; empty: it is not there.
func content(c cloudinit.Config, path string) string {
	for _, f := range c.Files {
		if f.Path == path {
			return f.Content
		}
	}

	return ""
}

// settings are the options of K3s.
func settings(c cloudinit.Config) map[string]any {
	found := map[string]any{}

	_ = yaml.Unmarshal([]byte(content(c, ConfigFile)), &found) // what cannot be read differs

	// Which etcd a server has is decided once, when it has none.
	delete(found, "cluster-init")

	// The program keeps the labels and taints of a node itself.
	delete(found, "node-label")
	delete(found, "node-taint")

	if names, there := found["tls-san"].([]any); there {
		found["tls-san"] = slices.DeleteFunc(slices.Clone(names), func(name any) bool {
			text, _ := name.(string)
			_, err := netip.ParseAddr(strings.TrimSpace(text))

			return err == nil
		})
	}

	return found
}

// proxyOf are the lines of proxy that a node was told.
func proxyOf(c cloudinit.Config) string {
	var lines []string

	for line := range strings.Lines(content(c, installFile)) {
		if strings.HasPrefix(line, exports) {
			lines = append(lines, line)
		}
	}

	return strings.Join(lines, "")
}
