package stacks

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"talos-proxmox/stacks/config"
	"talos-proxmox/stacks/schema"
)

// pages are the documents, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()

	paths, err := filepath.Glob("docs/*.md")
	if err != nil || len(paths) < 10 {
		t.Fatal(paths, err)
	}

	texts := map[string]string{}

	for _, path := range append(paths, "../README.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		texts[path] = string(text)
	}

	return texts
}

var (
	fence  = regexp.MustCompile("(?ms)^ *```([a-z]*)\n(.*?)^ *```$")
	span   = regexp.MustCompile("`([^`\n]+)`")
	dotted = regexp.MustCompile(`^[a-z][A-Za-z]*(\.[A-Za-z]+|\.<[a-z]+>|\["\d+"\])+$`)
	named  = regexp.MustCompile(`\b(pools|nodes|gpus)(\.[A-Za-z<>]+|\["\d+"\])`)
)

// TestPagesNameKeys: every key that a page names by its path is one that the schema has, in the text, in the commands that
// set it, and in what is shown of stack files.
func TestPagesNameKeys(t *testing.T) {
	keys := keysOfSchema(t)
	seen := 0

	// What is named in general, like pools.<name>, has keys below it.
	known := func(key string) bool {
		key = named.ReplaceAllString(key, "$1.<name>")
		if keys[key] != nil {
			return true
		}

		for k := range keys {
			if strings.HasPrefix(k, key+".") {
				return true
			}
		}

		return false
	}

	check := func(page, key string) {
		key = strings.TrimPrefix(key, config.Project+":")
		key, _, _ = strings.Cut(key, ": ")

		if !dotted.MatchString(key) || strings.HasSuffix(key, ".json") {
			return
		}

		first, _, _ := strings.Cut(strings.ReplaceAll(key, "[", "."), ".")
		is := false

		// Pages leave out what goes without saying.
		for _, above := range []string{"", "pools.x.", "proxmox.", "cluster.", "pools."} {
			if known(above + key) {
				seen++

				return
			}

			is = is || above != "pools." && known(above+first)
		}

		if is {
			t.Errorf("%s names %s, which is no key of the configuration", page, key)
		}
	}

	for page, text := range pages(t) {
		for _, m := range span.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			check(page, m[1])
		}

		for _, m := range regexp.MustCompile("pulumi config set ((?:--[a-z]+ )*)'?([a-z][^' \n`]*)").FindAllStringSubmatch(
			text, -1) {
			check(page, m[2])

			if name := strings.TrimPrefix(m[2], config.Project+":"); !strings.Contains(m[1], "--path") && keys[name] == nil {
				t.Errorf("%s sets %s, which is no key of the configuration", page, name)
			}
		}
	}

	if seen < 60 {
		t.Errorf("only %d keys were found in the pages", seen)
	}
}

// TestPagesShowStackFiles: what a page shows of a stack file has keys that there are, with values of their types. A
// part of one may lack what a whole one must have.
func TestPagesShowStackFiles(t *testing.T) {
	types, err := schema.KeyTypes()
	if err != nil {
		t.Fatal(err)
	}

	seen := 0

	for page, text := range pages(t) {
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			shown := m[2]
			if m[1] != "yaml" || !strings.Contains(shown, config.Project+":") || strings.Contains(shown, "pulumiConfig:") {
				continue
			}

			if !strings.Contains(shown, "config:\n") {
				shown = "config:\n" + regexp.MustCompile("(?m)^").ReplaceAllString(shown, "  ")
			}

			seen++

			// A program in YAML has more than its configuration.
			var file struct {
				Config map[string]any `yaml:"config"`
			}

			if err := yaml.Unmarshal([]byte(shown), &file); err != nil {
				t.Errorf("%s: %v\n%s", page, err, shown)

				continue
			}

			alone, err := yaml.Marshal(file)
			if err != nil {
				t.Fatal(err)
			}

			path := filepath.Join(t.TempDir(), "Pulumi.shown.yaml")
			if err := os.WriteFile(path, alone, 0o600); err != nil {
				t.Fatal(err)
			}

			values, err := config.ReadValues(path)
			if err != nil {
				t.Errorf("%s: %v\n%s", page, err, shown)

				continue
			}

			tree := map[string]any{}

			for key, text := range values {
				var value any
				if types[key] == "string" || json.Unmarshal([]byte(text), &value) != nil {
					value = text
				}

				tree[key] = value
			}

			problems, err := schema.CheckConfig(tree)
			if err != nil {
				t.Fatal(err)
			}

			for _, p := range problems {
				if p.Rule != "is required" {
					t.Errorf("%s: %s", page, p)
				}
			}
		}
	}

	if seen < 3 {
		t.Errorf("only %d stack files were found in the pages", seen)
	}
}

// quoted is a message in the first column of a table.
var quoted = regexp.MustCompile(`(?m)^\| "([^|]*)" \|`)

// TestPagesQuoteMessages: what the pages tell of messages is what the program says. Three dots stand for what changes.
func TestPagesQuoteMessages(t *testing.T) {
	var source strings.Builder

	for _, dir := range []string{"../components", "."} {
		err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			// The installation of K3s speaks for itself.
			if err != nil || !strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, ".sh") ||
				strings.HasSuffix(path, "_test.go") {
				return err
			}

			text, err := os.ReadFile(path)
			source.Write(text)

			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	seen := 0

	for page, text := range pages(t) {
		for _, m := range quoted.FindAllStringSubmatch(text, -1) {
			for part := range strings.SplitSeq(m[1], "…") {
				seen++

				if part = strings.TrimSpace(part); !strings.Contains(source.String(), part) {
					t.Errorf("%s quotes %q, which no message holds", page, part)
				}
			}
		}
	}

	if seen < 20 {
		t.Errorf("only %d messages were found in the pages", seen)
	}
}

// TestEnvironmentsOfPages: what pages have environments of Pulumi ESC hand to a stack is a configuration of it, once
// ESC has opened it. Secret keys are secret there.
func TestEnvironmentsOfPages(t *testing.T) {
	keys, err := schema.KeyTypes()
	if err != nil {
		t.Fatal(err)
	}

	seen := 0

	for page, text := range pages(t) {
		for _, m := range fence.FindAllStringSubmatch(text, -1) {
			var environment struct {
				Values struct {
					PulumiConfig map[string]any `yaml:"pulumiConfig"`
				}
			}

			if m[1] != "yaml" || !strings.Contains(m[2], "pulumiConfig:\n") {
				continue
			}

			if err := yaml.Unmarshal([]byte(undented(m[2])), &environment); err != nil {
				t.Errorf("%s: %v\n%s", page, err, m[2])
			}

			given := map[string]any{}

			for key, value := range environment.Values.PulumiConfig {
				_, name, _ := strings.Cut(key, ":")
				if keys[name] == "" {
					t.Errorf("%s: %s is not a key", page, key)
				}

				opened, secret := openESC(value)
				if slices.Contains(config.SecretKeys, name) && !secret {
					t.Errorf("%s: %s is not secret", page, key)
				}

				if slices.Contains(config.SecretKeys, name) {
					opened = map[string]any{"secure": "v1:x"} // as a file has what ESC keeps secret
				}

				given[config.Project+":"+name] = opened
				seen++
			}

			// What the environment leaves to the stack's file.
			for key, value := range minimal(t) {
				if _, there := given[key]; !there {
					given[key] = value
				}
			}

			stack, err := yaml.Marshal(map[string]any{"config": given})
			if err != nil {
				t.Fatal(err)
			}

			if _, err := config.LoadText(stack, t.TempDir()); err != nil {
				t.Errorf("%s: %v\n%s", page, err, stack)
			}
		}
	}

	if seen < 5 {
		t.Errorf("only %d keys were found", seen)
	}
}

// openESC is a value as ESC opens it, and whether it is secret: by itself, or from a provider of secrets.
func openESC(value any) (opened any, secret bool) {
	if call, ok := value.(map[string]any); ok && call["fn::secret"] != nil {
		return call["fn::secret"], true
	}

	if text, ok := value.(string); ok && strings.HasPrefix(text, "${vault.secrets.") {
		return config.Placeholder, true
	}

	return value, false
}

// minimal is the configuration of the smallest example.
func minimal(t *testing.T) map[string]any {
	t.Helper()

	text, err := os.ReadFile("examples/Pulumi.smallest.yaml")
	if err != nil {
		t.Fatal(err)
	}

	var file struct{ Config map[string]any }
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}

	return file.Config
}

// undented is a text without the indentation that all of its lines have.
func undented(text string) string {
	return strings.ReplaceAll("\n"+text, "\n"+text[:len(text)-len(strings.TrimLeft(text, " "))], "\n")
}
