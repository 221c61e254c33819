// Package cloudinit reads user data as cloud-init does, only stricter: what cloud-init would log and pass over is an
// error here. The schema is cloud-init's own (cloud-init 25.3, cloudinit/config/schemas/schema-cloud-config-v1.json).
package cloudinit

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"
)

//go:embed schema-cloud-config-v1.json
var schema []byte

// Config is what the lab's machines heed of a cloud-config.
type Config struct {
	Hostname      string   `json:"hostname"`
	Users         []User   `json:"users"`
	CACerts       CACerts  `json:"ca_certs"`
	Apt           Apt      `json:"apt"`
	PackageUpdate bool     `json:"package_update"`
	Packages      []string `json:"packages"`
	Files         []File   `json:"write_files"`
	Commands      [][]string
	// Runcmd is what Commands are read from.
	Runcmd []any `json:"runcmd"`
}

// CACerts are trusted in addition to the system's own.
type CACerts struct {
	Trusted []string `json:"trusted"`
}

// Apt has the mirrors of packages. The first of all architectures counts.
type Apt struct {
	HTTPProxy  string `json:"http_proxy"`
	HTTPSProxy string `json:"https_proxy"`
	Conf       string `json:"conf"`

	Primary []struct {
		Arches []string `json:"arches"`
		URI    string   `json:"uri"`
	} `json:"primary"`
}

// User is a login.
type User struct {
	Name    string   `json:"name"`
	Sudo    string   `json:"sudo"`
	SSHKeys []string `json:"ssh_authorized_keys"`
}

// File is a file that is written.
type File struct {
	Path        string `json:"path"`
	Permissions string `json:"permissions"`
	Content     string `json:"content"`
	Encoding    string `json:"encoding"`
}

var compiled = sync.OnceValues(func() (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, err
	}

	c := jsonschema.NewCompiler()
	if err := c.AddResource("cloud-config.json", doc); err != nil {
		return nil, err
	}

	return c.Compile("cloud-config.json")
})

// Parse reads user data.
func Parse(text string) (*Config, error) {
	first, _, _ := strings.Cut(text, "\n")
	if first != "#cloud-config" {
		return nil, fmt.Errorf("user data must begin with the line #cloud-config (it begins with %q)", first)
	}

	plain, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("user data is no YAML: %w", err)
	}

	s, err := compiled()
	if err != nil {
		return nil, err
	}

	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(plain))
	if err != nil {
		return nil, err
	}

	if err := s.Validate(value); err != nil {
		return nil, fmt.Errorf("user data does not have cloud-init's schema: %w", err)
	}

	var c Config
	if err := json.Unmarshal(plain, &c); err != nil {
		return nil, err
	}

	return &c, errors.Join(c.decode(), c.commands())
}

// decode takes the encoding off files.
func (c *Config) decode() error {
	for i := range c.Files {
		f := &c.Files[i]

		switch f.Encoding {
		case "", "text/plain":
		case "b64", "base64":
			b, err := base64.StdEncoding.DecodeString(f.Content)
			if err != nil {
				return fmt.Errorf("%s: %w", f.Path, err)
			}

			f.Content = string(b)
		default:
			return fmt.Errorf("%s: the lab does not decode %s", f.Path, f.Encoding)
		}
	}

	return nil
}

// commands reads what is run: lists as they are; texts are for a shell, which the lab's machines do not have.
func (c *Config) commands() error {
	for i, one := range c.Runcmd {
		list, ok := one.([]any)
		if !ok {
			return fmt.Errorf("runcmd[%d]: the lab runs lists of words, no shell commands: %v", i, one)
		}

		var words []string
		for _, w := range list {
			words = append(words, fmt.Sprint(w))
		}

		c.Commands = append(c.Commands, words)
	}

	return nil
}

// File is the content of a file that is written; false when there is none.
func (c *Config) File(path string) (File, bool) {
	for _, f := range c.Files {
		if f.Path == path {
			return f, true
		}
	}

	return File{}, false
}
