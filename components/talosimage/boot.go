// Package talosimage has what Talos runs from: the file that a node boots first, the schematic and the META values that
// the file is made of, the installer that Talos is installed and upgraded with, and which of them a configuration
// names. It is pure.
package talosimage

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"

	"talos-proxmox/components/plan"
	"talos-proxmox/components/spec"
)

// unnamable is what Proxmox VE replaces in the name of a file (normalize_content_filename of pve-storage).
var unnamable = regexp.MustCompile(`[^a-zA-Z0-9_.-]`)

// BootFile is a file that a host downloads for nodes to boot from.
type BootFile struct {
	// ID is the same for the same content.
	ID string
	// URL is where it is, Name what it is called on the datastore.
	URL, Name string
	// Decompress is how the host unpacks it, "zst" or empty.
	Decompress string
	// Checksum is its SHA-256 in hexadecimal digits; empty when it is not known.
	Checksum string
	// Schematic is what the Image Factory is asked for, and SchematicID the name it has for that; both are empty for a
	// file that is there already.
	Schematic, SchematicID string
}

// Boot is the file that the nodes of an image boot from; node counts only where an image is made for each. It returns
// nil when nothing is to be downloaded.
func Boot(p *plan.Plan, image plan.BootImage, node plan.Node) (*BootFile, error) {
	switch {
	case image.FactoryURL != "":
		return factoryFile(p, image, node)
	case image.URL != "":
		u, err := url.Parse(image.URL)
		if err != nil {
			return nil, err
		}

		sum := sha256.Sum256([]byte(image.URL))
		id := hex.EncodeToString(sum[:])

		// Proxmox VE takes no other ending for an ISO file, and would itself replace what it does not take in a name. Disk
		// images it keeps among them.
		suffix := ".iso"
		if image.Format == spec.FormatDisk {
			suffix = ".img"
		}

		name := unnamable.ReplaceAllString(strings.TrimSuffix(path.Base(u.Path), suffix), "_") + suffix

		return &BootFile{
			ID: id, URL: image.URL, Name: fmt.Sprintf("%s-%s-%s", p.Cluster, id[:shortID], name),
			Checksum: image.Checksum,
		}, nil
	default:
		return nil, nil //nolint:nilnil // nothing is an answer
	}
}

// shortID is how much of an id makes a name.
const shortID = 8

func factoryFile(p *plan.Plan, image plan.BootImage, node plan.Node) (*BootFile, error) {
	text, id, err := Schematic(p, image, node)
	if err != nil {
		return nil, err
	}

	f := &BootFile{
		ID: id, Schematic: text, SchematicID: id,
		Name: fmt.Sprintf("%s-talos-%s-%s%s-%s", p.Cluster, p.Talos, p.Platform, signed(image), id[:shortID]),
		URL:  fmt.Sprintf("%s/image/%s/%s/%s-amd64%s", image.FactoryURL, id, p.Talos, p.Platform, signed(image)),
	}

	if image.SecureBoot {
		// Of one schematic there are two images.
		sum := sha256.Sum256([]byte(id + secureBoot))
		f.ID = hex.EncodeToString(sum[:])
	}

	if image.Format == spec.FormatDisk {
		// Of what the factory offers, the host unpacks this. It refuses a file that is called .raw.
		f.URL, f.Name, f.Decompress = f.URL+".raw.zst", f.Name+".img", "zst"
	} else {
		f.URL, f.Name = f.URL+".iso", f.Name+".iso"
	}

	return f, nil
}
