package k3sconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"talos-proxmox/components/plan"
)

const binary = "the binary"

// commands stand in for those of a machine. The official script writes what it was called with, and the binary.
var commands = map[string]string{
	"uname":      `echo "${UNAME:-x86_64}"`,
	"df":         `printf 'Filesystem 1024-blocks Used Available Capacity Mounted on\n/dev/sda1 1 1 %s 1%% /\n' "${FREE:-8000000}"`,
	"modprobe":   `[ "$1" != "${NO_MODULE:-}" ]`,
	"systemctl":  `echo "systemctl $*" >>"$CALLS"; exit "${SYSTEMCTL:-0}"`,
	"dpkg-query": `for package in ${MISSING:-}; do [ "$package" != "$4" ] || grep -qx "$4" "$ROOT/apt" || exit 1; done; printf installed`,
	"apt-get": `echo "apt-get $*" >>"$CALLS"
case "$*" in
update*) exit "${NO_LISTS:-0}" ;;
*" ${NO_PACKAGE:-none}") exit 100 ;;
*) while [ $# -gt 1 ]; do shift; done; echo "$1" >>"$ROOT/apt" ;;
esac`,
	"apt-cache":  `[ "$2" != "${NO_SUCH:-none}" ] || exit 100`,
	"journalctl": `echo "level=fatal msg=\"token is not valid\""`,
	"curl": `echo "curl $*" >>"$CALLS"
[ -z "${NO_NETWORK:-}" ] || { echo "curl: (6) Could not resolve host" >&2; exit 6; }
while [ $# -gt 0 ]; do [ "$1" != --output ] || out=$2; shift; done
printf '%s' "${HTTP:-200}"
cat >"$out" <<'END'
echo "install $* version=$INSTALL_K3S_VERSION start=$INSTALL_K3S_SKIP_START" >>"$CALLS"
[ -z "${NO_BINARY:-}" ] || { echo "[ERROR]  Download failed" >&2; exit 1; }
printf '%s' "the binary" >"$ROOT/usr/local/bin/k3s"
END`,
}

// TestInstall runs the installation as a machine would: each way to fail, told apart by its status and its words.
func TestInstall(t *testing.T) {
	t.Parallel()

	sum := sha256.Sum256([]byte(binary))
	checksum := hex.EncodeToString(sum[:])

	const apt = "apt-get --option DPkg::Lock::Timeout=300 --yes install "

	const url = "https://raw.githubusercontent.com/k3s-io/k3s/v1.34.2%2Bk3s1/install.sh"

	for name, c := range map[string]struct {
		env       []string
		os        string
		role, sum string
		script    string // the checksum of the official script
		status    int
		fatal     string // what is written for whoever waits
		log       string
		calls     []string
	}{
		"server": {sum: checksum, log: "K3s is running", calls: []string{
			"install server version=v1.34.2+k3s1 start=true", "systemctl restart k3s",
		}},
		"agent on 22.04": {os: "ID=ubuntu\nVERSION_ID=\"22.04\"\n", role: "agent", log: "K3s is running", calls: []string{
			"install agent version=v1.34.2+k3s1 start=true", "systemctl restart k3s-agent",
		}},
		"unsupported system": {
			os: "ID=debian\nVERSION_ID=\"12\"\n", status: 78,
			fatal: "unsupported operating system debian 12: a node must be Ubuntu 22.04 or 24.04. Correct the template or the image",
		},
		"unsupported architecture": {
			env: []string{"UNAME=aarch64"}, status: 78,
			fatal: "unsupported architecture aarch64: a node must be x86_64",
		},
		"too little room": {
			env: []string{"FREE=1048576"}, status: 78,
			fatal: "too little room: 1024 MiB are free in /var, K3s and its images need 3072. Raise diskGiB",
		},
		"no module": {
			env: []string{"NO_MODULE=br_netfilter"}, status: 78,
			fatal: "the kernel has no module br_netfilter: K3s cannot run containers",
		},
		"a package that cloud-init did not get": {
			env: []string{"MISSING=qemu-guest-agent curl"}, log: "installing qemu-guest-agent, which cloud-init did not",
			calls: []string{
				"apt-get update --error-on=any", apt + "qemu-guest-agent", "systemctl start qemu-guest-agent", apt + "curl",
				"install server version=v1.34.2+k3s1 start=true", "systemctl restart k3s",
			},
		},
		"lists that are not whole, and the package in them": {
			env: []string{"MISSING=nfs-common", "NO_LISTS=100"},
			calls: []string{
				"apt-get update --error-on=any", apt + "nfs-common",
				"install server version=v1.34.2+k3s1 start=true", "systemctl restart k3s",
			},
		},
		"lists that are not whole, and no package": {
			env: []string{"MISSING=nfs-common", "NO_LISTS=100", "NO_PACKAGE=nfs-common", "NO_SUCH=nfs-common"}, status: 1,
			log:   "the installation of the package nfs-common failed; it is tried again",
			calls: []string{"apt-get update --error-on=any", apt + "nfs-common"},
		},
		"a package that cannot be got": {
			env: []string{"MISSING=nfs-common", "NO_PACKAGE=nfs-common"}, status: 1,
			log:   "the installation of the package nfs-common failed; it is tried again",
			calls: []string{"apt-get update --error-on=any", apt + "nfs-common"},
		},
		"no such package": {
			env: []string{"MISSING=nfs-common", "NO_PACKAGE=nfs-common", "NO_SUCH=nfs-common"}, status: 78,
			fatal: "there is no package nfs-common for ubuntu 24.04. Correct k3s.packages",
			calls: []string{"apt-get update --error-on=any", apt + "nfs-common"},
		},
		"no network": {
			env: []string{"NO_NETWORK=1"}, status: 1,
			log: "the download of " + url + " failed; it is tried again",
		},
		"no such release": {
			env: []string{"HTTP=404"}, status: 78,
			fatal: "there is no release v1.34.2+k3s1 of K3s: " + url + " is not there. Correct cluster.versions.k3s",
		},
		"a server that fails": {
			env: []string{"HTTP=503"}, status: 1,
			log: url + " answers with status 503; it is tried again",
		},
		"no binary": {
			env: []string{"NO_BINARY=1"}, status: 1, log: "the installation failed; it is tried again",
			calls: []string{"install server version=v1.34.2+k3s1 start=true"},
		},
		"the script that is set": {
			script: scriptSum(), log: "K3s is running",
			calls: []string{"install server version=v1.34.2+k3s1 start=true", "systemctl restart k3s"},
		},
		"another script": {
			script: strings.Repeat("0", 64), status: 78,
			fatal: url + " does not have the checksum that k3s.installChecksum states: it was not run",
		},
		"another binary": {
			sum: strings.Repeat("0", 64), status: 78,
			fatal: "the k3s binary does not have the checksum that k3s.checksum states: nothing of it was run",
			calls: []string{"install server version=v1.34.2+k3s1 start=true"},
		},
		"a service that does not start": {
			env: []string{"SYSTEMCTL=1"}, status: 1,
			log:   "k3s does not come up; its log ends with:\nlevel=fatal msg=\"token is not valid\"",
			calls: []string{"install server version=v1.34.2+k3s1 start=true", "systemctl restart k3s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			if c.os == "" {
				c.os = "ID=ubuntu\nVERSION_ID=\"24.04\"\n"
			}

			if c.role == "" {
				c.role = "server"
			}

			root := machine(t, c.os, "K3S_VERSION='v1.34.2+k3s1'\nK3S_ROLE='"+c.role+"'\nK3S_CHECKSUM='"+c.sum+
				"'\nK3S_INSTALL_CHECKSUM='"+c.script+"'\nK3S_PACKAGES='qemu-guest-agent curl nfs-common'\n")

			// A reason of an earlier run is no longer one.
			require.NoError(t, os.MkdirAll(filepath.Join(root, stateDir), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(root, FatalFile), []byte("old"), 0o600))

			log, status := install(t, root, c.env...)
			assert.Equal(t, c.status, status, log)
			assert.Contains(t, log, c.log)

			assert.Equal(t, c.fatal, strings.TrimSpace(read(t, filepath.Join(root, FatalFile))))
			assert.Equal(t, map[bool]string{true: "v1.34.2+k3s1\n"}[c.status == 0],
				read(t, filepath.Join(root, stateDir, "done")))

			var calls []string
			for call := range strings.Lines(read(t, filepath.Join(root, "calls"))) {
				if !strings.HasPrefix(call, "curl ") {
					calls = append(calls, strings.TrimSpace(call))
				}
			}

			assert.Equal(t, c.calls, calls)

			if c.sum != "" && c.status == 78 {
				assert.False(t, exists(filepath.Join(root, "usr/local/bin/k3s")), "an unknown binary stays")
			}
		})
	}
}

// TestInstallAgain: what failed for want of a network succeeds when it is there.
func TestInstallAgain(t *testing.T) {
	t.Parallel()

	root := machine(t, "ID=ubuntu\nVERSION_ID=24.04\n",
		"K3S_VERSION='v1.34.2+k3s1'\nK3S_ROLE='server'\nK3S_CHECKSUM=''\nK3S_PACKAGES='qemu-guest-agent'\n")

	_, status := install(t, root, "MISSING=qemu-guest-agent", "NO_LISTS=100", "NO_PACKAGE=qemu-guest-agent")
	require.Equal(t, 1, status)

	_, status = install(t, root, "MISSING=qemu-guest-agent", "NO_NETWORK=1")
	require.Equal(t, 1, status)

	log, status := install(t, root, "MISSING=qemu-guest-agent")
	require.Zero(t, status, log)

	calls := read(t, filepath.Join(root, "calls"))
	require.Contains(t, calls, "--retry 5 --retry-delay 3 --retry-all-errors")
	require.Equal(t, 2, strings.Count(calls, "--yes install qemu-guest-agent"), "what is installed is not installed again")
}

// TestInstallTold: the first server is installed, and does not start before it is told which etcd it has.
func TestInstallTold(t *testing.T) {
	t.Parallel()

	const settings = "K3S_VERSION='v1.34.2+k3s1'\nK3S_ROLE='server'\nK3S_CHECKSUM=''\nK3S_PACKAGES=''\nK3S_DATASTORE='told'\n"

	root := machine(t, "ID=ubuntu\nVERSION_ID=24.04\n", settings)
	impatient := filepath.Join(root, "bin", "sleep")
	require.NoError(t, os.WriteFile(impatient, []byte("#!/bin/sh\n"), 0o755)) //nolint:gosec // it is run

	log, status := install(t, root)
	require.Equal(t, 1, status, log)
	require.Contains(t, log, "waiting for pulumi up to say which cluster this server is of")
	require.NotContains(t, read(t, filepath.Join(root, "calls")), "systemctl restart")

	// It is told while it waits.
	begin, _, err := Datastore{}.Settings()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(impatient,
		[]byte("#!/bin/sh\nprintf '"+begin+"' >"+filepath.Join(root, DatastoreFile)+"\n"), 0o755)) //nolint:gosec // it is run

	log, status = install(t, root)
	require.Zero(t, status, log)
	require.Contains(t, read(t, filepath.Join(root, "calls")), "systemctl restart k3s")
	require.Equal(t, begin, read(t, filepath.Join(root, "etc/rancher/k3s/config.yaml.d/datastore.yaml")))
}

// TestInstallAnother: what is wanted since is installed, once, and what is no good leaves what was there.
func TestInstallAnother(t *testing.T) {
	t.Parallel()

	root := machine(t, "ID=ubuntu\nVERSION_ID=24.04\n",
		"K3S_VERSION='v1.34.2+k3s1'\nK3S_ROLE='server'\nK3S_CHECKSUM=''\nK3S_PACKAGES='qemu-guest-agent'\n"+
			"K3S_INSTALL_CHECKSUM='"+scriptSum()+"'\n")
	calls := func() []string {
		var found []string

		for call := range strings.Lines(read(t, filepath.Join(root, "calls"))) {
			if !strings.HasPrefix(call, "curl ") {
				found = append(found, strings.TrimSpace(call))
			}
		}

		require.NoError(t, os.WriteFile(filepath.Join(root, "calls"), nil, 0o600))

		return found
	}
	want := func(k plan.PlannedK3s) {
		require.NoError(t, os.WriteFile(filepath.Join(root, WantedFile), []byte(Requested(&k)), 0o600))
	}

	log, status := install(t, root)
	require.Zero(t, status, log)
	require.Empty(t, read(t, filepath.Join(root, WantedFile)))
	require.Len(t, calls(), 2)

	state, err := os.Stat(filepath.Join(root, stateDir))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), state.Mode().Perm(), "the guest agent makes files for everybody")

	log, status = install(t, root)
	require.Zero(t, status, log)
	require.Contains(t, log, "K3s v1.34.2+k3s1 is installed")
	require.Empty(t, calls(), "a machine that starts again")

	want(plan.PlannedK3s{Version: "v1.35.0+k3s1", InstallChecksum: strings.Repeat("0", 64)})

	log, status = install(t, root)
	require.Equal(t, 78, status, log)
	require.Empty(t, calls())

	// Without a checksum, none of an earlier version holds.
	want(plan.PlannedK3s{Version: "v1.35.0+k3s1"})
	require.Contains(t, read(t, filepath.Join(root, WantedFile)), "K3S_INSTALL_CHECKSUM=''\n")

	// There is less room on a machine that has images.
	log, status = install(t, root, "FREE=1048576")
	require.Zero(t, status, log)
	require.Equal(t, []string{"install server version=v1.35.0+k3s1 start=true", "systemctl restart k3s"}, calls())
	require.Equal(t, "v1.35.0+k3s1\n", read(t, filepath.Join(root, stateDir, "done")))

	require.NoError(t, os.WriteFile(filepath.Join(root, "usr/local/bin/k3s"), []byte("what runs"), 0o700)) //nolint:gosec // as K3s has it
	want(plan.PlannedK3s{Version: "v1.35.1+k3s1", Checksum: strings.Repeat("0", 64)})

	log, status = install(t, root)
	require.Equal(t, 78, status, log)
	require.Equal(t, []string{"install server version=v1.35.1+k3s1 start=true"}, calls(), "K3s is not restarted")
	require.Equal(t, "what runs", read(t, filepath.Join(root, "usr/local/bin/k3s")))
}

// scriptSum is the checksum of the official script that the commands stand in for.
func scriptSum() string {
	_, script, _ := strings.Cut(commands["curl"], "<<'END'\n")
	sum := sha256.Sum256([]byte(strings.TrimSuffix(script, "END")))

	return hex.EncodeToString(sum[:])
}

// machine is a root directory with what the installation looks at.
func machine(t *testing.T, system, settings string) string {
	t.Helper()

	root := t.TempDir()

	for path, text := range map[string]string{
		"etc/os-release": system, "etc/default/k3s-install": settings, "var/x": "",
		"usr/local/bin/x": "", "calls": "", "apt": "",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, path), []byte(text), 0o600))
	}

	for name, text := range commands {
		path := filepath.Join(root, "bin", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755)) //nolint:gosec // it is run
	}

	require.NoError(t, os.WriteFile(filepath.Join(root, "install.sh"), []byte(installer), 0o600))

	return root
}

func install(t *testing.T, root string, env ...string) (string, int) {
	t.Helper()

	command := exec.CommandContext(t.Context(), "sh", filepath.Join(root, "install.sh"), root)
	command.Env = append([]string{
		"PATH=" + filepath.Join(root, "bin") + ":" + os.Getenv("PATH"), "ROOT=" + root,
		"CALLS=" + filepath.Join(root, "calls"),
	}, env...)
	out, err := command.CombinedOutput()

	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return string(out), failed.ExitCode()
	}

	require.NoError(t, err, string(out))

	return string(out), 0
}

func read(t *testing.T, path string) string {
	t.Helper()

	text, err := os.ReadFile(path)
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(t, err)
	}

	return string(text)
}

func exists(path string) bool {
	_, err := os.Stat(path)

	return err == nil
}

// TestSupportedUbuntu: the plan warns of images of releases that the script refuses, and of no others.
func TestSupportedUbuntu(t *testing.T) {
	assert.Contains(t, installer, `"ubuntu `+strings.Join(plan.UbuntuOfK3s(), `" | "ubuntu `)+`") ;;`)
}
