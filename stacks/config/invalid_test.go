package config

import (
	"path/filepath"
	"strings"
	"testing"

	"talos-proxmox/tests/golden"
)

// TestInvalidConfigs reads each wrong configuration of testdata/wrong; the file next to it holds the whole message.
func TestInvalidConfigs(t *testing.T) {
	files, err := filepath.Glob("testdata/wrong/*.yaml")
	if err != nil {
		t.Fatal(err)
	}

	if len(files) < 60 {
		t.Fatalf("only %d wrong configurations", len(files))
	}

	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			_, err := LoadFile(file)
			if err == nil {
				t.Fatal("nothing is found wrong")
			}

			// No order of a map may reach a message.
			for range 5 {
				if _, again := LoadFile(file); again == nil || again.Error() != err.Error() {
					t.Fatalf("the message changes:\n%v\n%v", err, again)
				}
			}

			golden.Check(t, strings.TrimSuffix(file, ".yaml")+".txt", err.Error()+"\n")
		})
	}
}

// TestSecretsAreRequired: a stack that Pulumi loads has no stand-ins.
func TestSecretsAreRequired(t *testing.T) {
	all, err := readConfig("../examples/Pulumi.atlas.yaml")
	if err != nil {
		t.Fatal(err)
	}

	values, _, err := valuesOf(all)
	if err != nil {
		t.Fatal(err)
	}

	const want = "the configuration has 2 problems:\n" +
		"  - proxmoxTokenSecret: is required; run: pulumi config set --secret proxmoxTokenSecret\n" +
		"  - tailscaleAuthKey: is required: tailscale is set; run: pulumi config set --secret tailscaleAuthKey, " +
		"or set HEADSCALE_AUTH_KEY in the environment"

	if _, err = Decode(values, Secrets{}, "."); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}

	values["proxmoxTokenSecret"], values["tailscaleAuthKey"] = "not a secret, but long", "tskey-auth-x"

	_, err = Decode(values, Secrets{}, ".")
	if err == nil || strings.Contains(err.Error(), "but long") {
		t.Errorf("a secret of a wrong form is not refused, or quoted: %v", err)
	}

	values["proxmoxTokenSecret"] = "0b3c-1d"

	c, err := Decode(values, Secrets{}, ".")
	if err != nil {
		t.Fatal(err)
	}

	if _, err := c.Plan(); err != nil {
		t.Error(err)
	}
}
