package generate

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"talos-proxmox/components/atomicfile"
	"talos-proxmox/stacks/config"
)

// secretPatch is a patch that may hold a secret, such as the password of a registry or the key of a tailnet.
type secretPatch string

// takeSecrets takes such patches out of the pools.
func takeSecrets(pools tree) []Secret {
	var found []Secret

	take := func(path string, of tree) {
		patches, _ := of["patches"].([]any) // not there in most
		if len(patches) == 0 {
			return
		}

		if patch, ok := patches[0].(secretPatch); ok {
			delete(of, "patches")
			found = append(found, Secret{Path: path + ".patches[0]", Text: string(patch)})
		}
	}

	for _, name := range slices.Sorted(maps.Keys(pools)) {
		pool := pools[name].(tree)
		path := config.Project + ":pools." + name
		take(path, pool)

		for _, key := range []string{"nodes", "gpus"} {
			nodes, _ := pool[key].(tree) // a pool has one of them
			for _, n := range slices.Sorted(maps.Keys(nodes)) {
				take(fmt.Sprintf("%s.%s[%q]", path, key, n), nodes[n].(tree))
			}
		}
	}

	return found
}

// WriteSecrets writes the secrets to files of their own, for their owner only, and the commands that set them. On an
// error, no file is left.
func (r *Result) WriteSecrets(out io.Writer) error {
	if len(r.Secrets) == 0 {
		return nil
	}

	dir, err := atomicfile.SecretDir("talos-patches-")
	if err != nil {
		return err
	}

	if err := r.writeSecrets(dir, out); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}

	return nil
}

func (r *Result) writeSecrets(dir string, out io.Writer) error {
	var commands strings.Builder

	for i, s := range r.Secrets {
		file := filepath.Join(dir, fmt.Sprintf("%d.yaml", i+1))

		err := atomicfile.Write(dir, atomicfile.Text([]byte(s.Text)),
			func(temporary string) error { return os.Rename(temporary, file) })
		if err != nil {
			return err
		}

		fmt.Fprintf(&commands, "  pulumi config set --secret --path '%s' < %s\n", s.Path, file)
	}

	_, err := fmt.Fprintf(out, "\nsettings that may be secret are not in the stack file. Once the stack is there, "+
		"set them:\n\n"+
		"%s  rm -r %s\n", &commands, dir)

	return err
}
