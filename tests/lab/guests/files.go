package guests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"talos-proxmox/tests/lab/machine"
)

const shareInterval = 100 * time.Millisecond

// share keeps files the same in the guest and where the agent of its stand-in reads and writes them, until the power is
// cut. What the agent's client wrote wins.
func (g *Guests) share(vmid int, v *guest) {
	root := filepath.Join(g.opts.Dir, fmt.Sprintf("%d.root", vmid))
	if err := os.RemoveAll(root); err != nil { // of a VM that was there before
		g.opts.Log(err.Error())
	}

	last := map[string]string{}

	for {
		select {
		case <-v.sync:
			return
		case <-time.After(shareInterval):
		}

		v.mu.Lock()
		files, ok := v.system.(machine.Files)
		v.mu.Unlock()

		if !ok {
			continue
		}

		for _, path := range g.opts.Files {
			if err := shareFile(files, path, filepath.Join(root, path), last); err != nil {
				g.opts.Log(fmt.Sprintf("VM %d: %s: %v", vmid, path, err))
			}
		}
	}
}

func shareFile(files machine.Files, path, copied string, last map[string]string) error {
	if text, err := os.ReadFile(copied); err == nil && string(text) != last[path] {
		last[path] = string(text)

		return files.WriteFile(path, string(text))
	}

	text, err := files.ReadFile(path)
	if err != nil { // there is none, or no agent runs yet
		if _, was := last[path]; was {
			delete(last, path)

			// The share of the VM's next life may have removed it.
			if err := os.Remove(copied); !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}

		return nil
	}

	if text == last[path] {
		return nil
	}

	last[path] = text

	if err := os.MkdirAll(filepath.Dir(copied), 0o700); err != nil {
		return err
	}

	return os.WriteFile(copied, []byte(text), 0o600)
}
