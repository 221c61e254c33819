package k3sconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
	"talos-proxmox/tests/lab/cloudinit"
)

// TestInstallFromMirror: all that is downloaded comes from the mirror, and runs only with the checksum of its release.
func TestInstallFromMirror(t *testing.T) {
	t.Parallel()

	const (
		files  = "https://mirror.lan/k3s/v1.34.2%2Bk3s1/"
		script = `echo "install $* version=$INSTALL_K3S_VERSION skip=$INSTALL_K3S_SKIP_DOWNLOAD" >>"$CALLS"`
		images = "k3s-airgap-images-amd64.tar.zst"
	)

	sumOf := func(text string) string {
		sum := sha256.Sum256([]byte(text))

		return hex.EncodeToString(sum[:])
	}
	whole := map[string]string{
		"install.sh": script, "k3s": binary, images: "the images",
		"sha256sum-amd64.txt": sumOf("the images") + "  " + images + "\n" + sumOf(binary) + "  k3s\n",
	}
	installed := []string{"install server version=v1.34.2+k3s1 skip=true", "systemctl restart k3s"}

	for name, c := range map[string]struct {
		change map[string]string // files of the mirror; empty: it has none
		sum    string
		status int
		log    string
		calls  []string
		images string
	}{
		"all": {sum: sumOf(binary), log: "K3s is running", calls: installed, images: "the images"},
		"no images": {
			change: map[string]string{images: ""}, log: "the mirror has no images: they come from registries", calls: installed,
		},
		"no release": {
			change: map[string]string{"install.sh": ""}, status: 78,
			log: "is not there. Add it to the mirror, or correct cluster.versions.k3s",
		},
		"no binary": {
			change: map[string]string{"k3s": ""}, status: 1,
			log: "the download of " + files + "k3s failed with status 404; it is tried again", images: "the images",
		},
		"another binary": {
			change: map[string]string{"k3s": "altered"}, status: 1,
			log: files + "k3s does not have the checksum of sha256sum-amd64.txt; it is tried again", images: "the images",
		},
		"images without a checksum": {
			change: map[string]string{"sha256sum-amd64.txt": sumOf(binary) + "  k3s\n"}, status: 1,
			log: files + images + " does not have the checksum of sha256sum-amd64.txt; it is tried again",
		},
		"another release than k3s.checksum": {
			sum: strings.Repeat("0", 64), status: 78, log: "does not have the checksum that k3s.checksum states",
			calls: installed[:1], images: "the images",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			k := &plan.PlannedK3s{
				Version: "v1.34.2+k3s1", Checksum: c.sum, Mirror: "https://mirror.lan/k3s", StartTimeout: 10 * time.Minute,
			}
			root := machine(t, "ID=ubuntu\nVERSION_ID=24.04\n", "K3S_ROLE='server'\nK3S_PACKAGES=''\n"+Wanted(k))

			write := func(path, text string, mode os.FileMode) {
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(root, path), []byte(text), mode))
			}
			write("install.sh", installation(k), 0o600)
			write("bin/curl", `#!/bin/sh
while [ $# -gt 1 ]; do [ "$1" != --output ] || out=$2; shift; done
case $1 in `+files+`*) cp "$ROOT/mirror/${1##*/}" "$out" 2>/dev/null && printf 200 || printf 404 ;; *) exit 6 ;; esac
`, 0o755)

			for file, text := range whole {
				if changed, is := c.change[file]; is {
					text = changed
				}

				if text != "" {
					write("mirror/"+file, text, 0o600)
				}
			}

			log, status := install(t, root)
			assert.Equal(t, c.status, status, log)
			assert.Contains(t, log, c.log)
			assert.Equal(t, strings.Join(c.calls, "\n"), strings.TrimSpace(read(t, filepath.Join(root, "calls"))))
			assert.Equal(t, c.images, read(t, filepath.Join(root, "var/lib/rancher/k3s/agent/images", images)))
			assert.Equal(t, c.status == 0, exists(filepath.Join(root, "usr/local/bin/k3s")), "a binary that was not verified")
		})
	}
}

// TestMirrors: where packages and K3s come from is in the user data, and what runs on the node asks nowhere else.
func TestMirrors(t *testing.T) {
	t.Parallel()

	p := planned(t)
	p.K3s.Mirror, p.K3s.AptMirror = "https://mirror.lan/k3s", "https://mirror.lan/ubuntu"

	text, err := UserData(p, Node{Planned: p.Nodes()[3], Server: "https://10.0.0.11:6443"}, identity(), Secrets{})
	require.NoError(t, err)
	assert.NotContains(t, text, "github")

	read, err := cloudinit.Parse(text)
	require.NoError(t, err)
	assert.Equal(t, "https://mirror.lan/ubuntu", read.Apt.Primary[0].URI)

	settings, _ := read.File("/etc/default/k3s-install")
	assert.Contains(t, settings.Content, "\nK3S_MIRROR='https://mirror.lan/k3s'\n")
}
