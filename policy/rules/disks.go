package rules

import (
	"fmt"
	"slices"

	"talos-proxmox/components/tokens"
)

func diskRules(b *builder) []Rule {
	return []Rule{
		perResource(b, Rule{
			Name:   "disk-discard",
			Must:   "Disks on thin storage must discard, or used space is never returned.",
			Remedy: "Set discard to on; the first disk of a clone has its template's options and is not checked.",
			Advice: true,
		}, thinSettings{ThinDatastores: []string{"local-lvm", "local-zfs", "*thin*", "*zfs*", "*ceph*", "*rbd*"}},
			diskDiscard),
	}
}

type thinSettings struct {
	except
	ThinDatastores []string `json:"thinDatastores" jsonschema_description:"Thin-provisioned datastores; * matches any text."`
}

func (s thinSettings) check() error { return checkPatterns(slices.Concat(s.Except, s.ThinDatastores)) }

func diskDiscard(s thinSettings, r Resource) []Finding {
	if r.Type != tokens.VM {
		return nil
	}

	var found []Finding

	for i, disk := range list(r.at("disks")) {
		if i == 0 && r.at("clone").IsMap() {
			continue
		}

		datastore, discard := text(at(disk, "datastoreId")), at(disk, "discard")
		if !known(discard) || text(discard) == "on" || !matches(s.ThinDatastores, datastore) {
			continue
		}

		value := "on datastore " + datastore
		if d := text(discard); d != "" {
			value = d + " " + value
		}

		found = append(found, r.finding(fmt.Sprintf("disks[%d].discard", i), "must be on", value, "set it to on"))
	}

	return found
}
