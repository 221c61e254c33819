package talosimage

import (
	"cmp"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"talos-proxmox/components/planner/plantest"
	"talos-proxmox/components/spec"
)

func TestBoot(t *testing.T) {
	nocloud := plantest.Atlas(plantest.Talos112)
	nocloud.Image.Platform = spec.PlatformNoCloud

	disk := plantest.Atlas(plantest.Talos112)
	disk.Image.Factory.Format, disk.Image.Factory.URL = spec.FormatDisk, "https://factory.lan/"
	disk.Proxmox.SSH, disk.Provided.SSHKey = &spec.SSH{Username: "root"}, true

	url := plantest.Atlas(plantest.Talos112)
	url.Image = spec.Image{Source: spec.SourceISO, ISO: spec.ISOImage{
		URL:      "https://mirror.lan/images/talos-1.12.4.iso",
		Checksum: "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
	}}
	url.Network.Gateway, url.Network.Nameservers = "", nil

	noSuffix := url
	noSuffix.Image.ISO = spec.ISOImage{URL: "https://mirror.lan/latest?arch=amd64"}

	root := url
	root.Image.ISO = spec.ISOImage{URL: "https://mirror.lan/"}

	spaces := url
	spaces.Image.ISO = spec.ISOImage{URL: "https://mirror.lan/my%20images/Talos%20v1.12.4%2B1.iso"}

	volume := url
	volume.Image.ISO = spec.ISOImage{Volume: "local:iso/talos-1.12.4.iso"}

	for name, c := range map[string]struct {
		spec spec.Spec
		want *BootFile
	}{
		"an ISO file for each node, its address inside": {plantest.Atlas(plantest.Talos112), &BootFile{
			URL:  "https://factory.talos.dev/image/ID0/v1.12.4/metal-amd64.iso",
			Name: "atlas-talos-v1.12.4-metal-ID8.iso",
		}},
		"one for all": {nocloud, &BootFile{
			URL:  "https://factory.talos.dev/image/ID0/v1.12.4/nocloud-amd64.iso",
			Name: "atlas-talos-v1.12.4-nocloud-ID8.iso",
		}},
		"a disk, from a factory of one's own": {disk, &BootFile{
			URL:  "https://factory.lan/image/ID0/v1.12.4/metal-amd64.raw.zst",
			Name: "atlas-talos-v1.12.4-metal-ID8.img", Decompress: "zst",
		}},
		"signed": {forSecureBoot(nocloud), &BootFile{
			URL:  "https://factory.talos.dev/image/ID0/v1.12.4/nocloud-amd64-secureboot.iso",
			Name: "atlas-talos-v1.12.4-nocloud-secureboot-ID8.iso",
		}},
		"a signed disk": {newest(forSecureBoot(disk)), &BootFile{
			URL:  "https://factory.lan/image/ID0/v1.14.1/metal-amd64-secureboot.raw.zst",
			Name: "atlas-talos-v1.14.1-metal-secureboot-ID8.img", Decompress: "zst",
		}},
		"a URL": {url, &BootFile{
			URL: "https://mirror.lan/images/talos-1.12.4.iso", Name: "atlas-ID8-talos-1.12.4.iso",
			Checksum: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		}},
		"a URL that does not end like a file": {
			noSuffix,
			&BootFile{URL: "https://mirror.lan/latest?arch=amd64", Name: "atlas-ID8-latest.iso"},
		},
		"a URL that does not end at all": {root, &BootFile{URL: "https://mirror.lan/", Name: "atlas-ID8-_.iso"}},
		"a URL with what no file is called": {spaces, &BootFile{
			URL: "https://mirror.lan/my%20images/Talos%20v1.12.4%2B1.iso", Name: "atlas-ID8-Talos_v1.12.4_1.iso",
		}},
		"a file that is there": {volume, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := plantest.New(t, c.spec)
			pool := p.Pools[0]

			got, err := Boot(p, pool.Image, pool.Nodes[0])
			if err != nil {
				t.Fatal(err)
			}

			if c.want != nil && got != nil {
				c.want.ID = got.ID

				if pool.Image.FactoryURL != "" {
					if c.want.Schematic, c.want.SchematicID, err = Schematic(p, pool.Image, pool.Nodes[0]); err != nil {
						t.Fatal(err)
					}

					if same := got.ID == c.want.SchematicID; same == pool.Image.SecureBoot {
						t.Errorf("what has one schematic has one id, and another if it is signed: %s, %s", got.ID, c.want.SchematicID)
					}
				}

				id := cmp.Or(c.want.SchematicID, got.ID)
				c.want.URL, c.want.Name = withID(c.want.URL, id), withID(c.want.Name, id)
			}

			if diff := gocmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func newest(s spec.Spec) spec.Spec {
	s.Cluster.Versions = plantest.Talos114

	return s
}

// withID puts an id where a test could not write it: ID0 is all of it, ID8 its beginning.
func withID(text, id string) string {
	return strings.NewReplacer("ID0", id, "ID8", id[:shortID]).Replace(text)
}

// TestBootFilesDiffer: what holds the address of a node is no other node's, and what does not is everybody's.
func TestBootFilesDiffer(t *testing.T) {
	nocloud := plantest.Atlas(plantest.Talos112)
	nocloud.Image.Platform = spec.PlatformNoCloud

	for _, c := range []struct {
		spec spec.Spec
		want int
	}{{plantest.Atlas(plantest.Talos112), 3}, {nocloud, 1}} {
		p := plantest.New(t, c.spec)
		ids := map[string]bool{}

		for _, pool := range p.Pools {
			for _, n := range pool.Nodes {
				f, err := Boot(p, pool.Image, n)
				if err != nil {
					t.Fatal(err)
				}

				ids[f.ID] = true
			}
		}

		if len(ids) != c.want {
			t.Errorf("%s: %d files, want %d", p.Platform, len(ids), c.want)
		}
	}
}
