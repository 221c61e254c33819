package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
)

const project = "../.."

// git runs git in the project and returns what it prints. A copy without a repository is not looked at.
func git(t *testing.T, args ...string) string {
	t.Helper()

	if err := exec.CommandContext(t.Context(), "git", "-C", project, "rev-parse", "--git-dir").Run(); err != nil {
		t.Skip("SKIPPED: no git, or no repository: ", err)
	}

	printed, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", project}, args...)...).Output()
	if err != nil {
		t.Fatal(args, err)
	}

	return string(printed)
}

// TestTracked: no state and no secret in plain text is in version control.
func TestTracked(t *testing.T) {
	tracked := strings.Split(strings.TrimSuffix(git(t, "ls-files", "-z"), "\x00"), "\x00")
	if len(tracked) < 100 {
		t.Fatal("only these were looked at: ", tracked)
	}

	for _, name := range tracked {
		text, err := os.ReadFile(filepath.Join(project, name))
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		} else if err != nil {
			t.Fatal(err)
		}

		if what := exposed(name, text); what != "" {
			t.Errorf("%s is tracked: %s. Take it out with 'git rm --cached', and replace what it gave away", name, what)
		}
	}
}

// TestIgnored: what the program, pulumi and this command leave behind cannot be added by mistake.
func TestIgnored(t *testing.T) {
	for _, name := range []string{
		"state/.pulumi/stacks/talos-proxmox/dev.json", ".pulumi/stacks/talos-proxmox/dev.json",
		"state-backups/dev.20261121-180000.json",
		"etcd-backups/dev.20261121-180000.db",
		"elsewhere/dev.pre-restore.20261121-180000.json", "elsewhere/dev.import.json", "elsewhere/dev.secrets.yaml",
		"secrets.yaml", "kubeconfig",
		"talos/talosconfig", "prod.kubeconfig", "Pulumi.dev.plain.yaml", "rehearsal/dev/kubeconfig", "id.pem", "id.key",
	} {
		git(t, "check-ignore", "--no-index", "-q", name)
	}
}

// TestDevelopmentStack: the stack that everybody starts with needs no passphrase.
func TestDevelopmentStack(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(project, "Pulumi.dev.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	for _, mark := range []string{"secure:", "encryptionsalt:", "secretsprovider:", "encryptedkey:"} {
		if bytes.Contains(text, []byte(mark)) {
			t.Error("Pulumi.dev.yaml holds " + mark)
		}
	}
}

var (
	// leftovers are names of files that hold state or credentials, wherever they are.
	leftovers = regexp.MustCompile(
		`^(kubeconfig|.*\.kubeconfig|kubeconfig\.ya?ml|talosconfig|(.*\.)?secrets\.ya?ml|.*\.import\.json|id_(rsa|ecdsa|ed25519)` +
			`|.*\.tfstate(\..*)?|Pulumi\..*\.plain\.yaml)$`)
	// states are directories and names of Pulumi's state, and of its copies.
	states = regexp.MustCompile(`(^|/)(\.pulumi|state-backups|etcd-backups)/|\.pre-restore\.|\.\d{8}-\d{6}\.json$`)
	// exported is the content of a state under any name.
	exported = regexp.MustCompile(`(?s)"(deployment|checkpoint)"\s*:.*"urn"\s*:\s*"urn:pulumi:`)

	privateKey = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----\s*\n?[A-Za-z0-9+/=]{16,}`)
	// encodedPEM is PEM in base64, as credentials and machine configuration hold it.
	encodedPEM = regexp.MustCompile(`LS0tLS1CRUdJTi[A-Za-z0-9+/]{40,}=*`)

	stackFile = regexp.MustCompile(`^Pulumi\..+\.ya?ml$`)
	secretKey = regexp.MustCompile(`(?i)(secrets?|password|passphrase|private_?key|auth_?key|api_?key|token)$`)
)

// exposed says what a file gives away.
func exposed(name string, text []byte) string {
	base := path.Base(name)

	switch {
	case leftovers.MatchString(base):
		return "by its name it holds state or credentials"
	case states.MatchString(name), path.Ext(base) == ".json" && exported.Match(text):
		return "it is the state of a stack"
	case privateKey.Match(text):
		return "it holds a private key"
	case slices.ContainsFunc(encodedPEM.FindAll(text, -1), holdsPrivateKey):
		return "it holds a private key in base64"
	case stackFile.MatchString(base):
		var file struct {
			Config map[string]any `yaml:"config"`
		}

		if err := yaml.Unmarshal(text, &file); err != nil {
			return "it is no stack file: " + err.Error()
		}

		if key := plain("", file.Config); key != "" {
			return key + " is not encrypted; set it with 'pulumi config set --secret'"
		}
	}

	return ""
}

func holdsPrivateKey(encoded []byte) bool {
	// It may be cut off or run on: what can be decoded is enough.
	whole := encoded[:len(encoded)/4*4]
	decoded := make([]byte, base64.StdEncoding.DecodedLen(len(whole)))
	n, _ := base64.StdEncoding.Decode(decoded, whole)

	return bytes.Contains(decoded[:n], []byte("PRIVATE KEY"))
}

// plain finds a key that is called like a secret and has a value that is not encrypted.
func plain(above string, value any) string {
	switch v := value.(type) {
	case map[string]any:
		if _, encrypted := v["secure"].(string); encrypted && len(v) == 1 {
			return ""
		}

		var names []string
		for name := range v {
			names = append(names, name)
		}

		slices.Sort(names)

		for _, name := range names {
			if found := plain(strings.TrimPrefix(above+"."+name, "."), v[name]); found != "" {
				return found
			}
		}
	case []any:
		for i, element := range v {
			if found := plain(fmt.Sprintf("%s[%d]", above, i), element); found != "" {
				return found
			}
		}
	case nil:
	default:
		if fmt.Sprint(v) != "" && secretKey.MatchString(above) {
			return above
		}
	}

	return ""
}

// TestExposed: the test above sees what it should, and nothing else.
func TestExposed(t *testing.T) {
	const (
		// Not written as a whole, so that this file is none.
		begin = "-----BEGIN " + "ED25519 PRIVATE KEY-----\n"
		body  = "MC4CAQAwBQYDK2VwBCIEIJQxMC4CAQAwBQYDK2VwBCIEIJQx\n"
	)

	encoded := base64.StdEncoding.EncodeToString([]byte(begin + body))
	certificate := base64.StdEncoding.EncodeToString([]byte("-----BEGIN CERTIFICATE-----\n" + body))

	got := map[string]string{}
	want := map[string]string{}

	for name, c := range map[string]struct{ text, want string }{
		"deploy/kubeconfig":                     {"", "by its name it holds state or credentials"},
		"lab.kubeconfig":                        {"", "by its name it holds state or credentials"},
		"talosconfig":                           {"", "by its name it holds state or credentials"},
		"a/secrets.yaml":                        {"", "by its name it holds state or credentials"},
		"a/dev.secrets.yaml":                    {"", "by its name it holds state or credentials"},
		"a/dev.import.json":                     {"", "by its name it holds state or credentials"},
		"terraform.tfstate.backup":              {"", "by its name it holds state or credentials"},
		"a/.pulumi/stacks/p/dev.json.bak":       {"", "it is the state of a stack"},
		"backups/dev.20261121-180000.json":      {"", "it is the state of a stack"},
		"a/dev.pre-restore.20261121-180000.txt": {"", "it is the state of a stack"},
		"a/export.json":                         {`{"version": 3, "deployment": {"resources": [{"urn": "urn:pulumi:dev::p::t::n"}]}}`, "it is the state of a stack"},
		"a/checkpoint.json":                     {`{"checkpoint": {"latest": {"resources": [{"urn": "urn:pulumi:dev::p::t::n"}]}}}`, "it is the state of a stack"},
		"a/key.txt":                             {begin + body, "it holds a private key"},
		"a/controlplane.yaml": {
			"machine:\n  ca: { crt: " + certificate + ", key: " + encoded + " }\n",
			"it holds a private key in base64",
		},
		"Pulumi.prod.yaml": {
			"config:\n  talos-proxmox:proxmoxTokenSecret: abc\n",
			"talos-proxmox:proxmoxTokenSecret is not encrypted; set it with 'pulumi config set --secret'",
		},
		"Pulumi.a.yaml": {
			"config:\n  other:list: [{ password: 1 }]\n",
			"other:list[0].password is not encrypted; set it with 'pulumi config set --secret'",
		},
		"x/Pulumi.b.yaml": {"config: [", "it is no stack file: yaml: line 1: did not find expected node content"},

		"Pulumi.c.yaml": {"encryptionsalt: v1:x\nconfig:\n  talos-proxmox:proxmoxTokenSecret: { secure: v1:x }\n  " +
			"talos-proxmox:proxmox: { tokenId: a@pve!b }\n", ""},
		"a/ca.crt":              {"crt: " + certificate, ""},
		"components/secrets.go": {`strings.Contains(text, "PRIVATE KEY")`, ""},
		"schema.json":           {`{"deployment": {}}`, ""},
		"other.yaml":            {"password: example\n", ""},
	} {
		got[name], want[name] = exposed(name, []byte(c.text)), c.want
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
