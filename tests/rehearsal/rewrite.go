package rehearsal

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"talos-proxmox/tests/lab"
)

// standIn stands for a secret that only the operator can decrypt and the lab never looks at.
const standIn = "00000000-0000-0000-0000-000000000000"

// rewrite makes a copy of a stack that means the lab instead of the operator's Proxmox VE: its endpoint and credentials,
// and every address of the stack's network mapped onto the lab's. The program does not notice.
func (s *Stack) rewrite(l *lab.Lab, network netip.Prefix, toLab func(netip.Addr) netip.Addr) (*Stack, error) {
	secrets := s.withoutSecrets()

	inlined, err := secrets.withPatchesInline()
	if err != nil {
		return nil, err
	}

	mapped := mapText(inlined.values, func(text string) string { return mapAddresses(text, network, toLab) }).(map[string]any)

	mapped["network"].(map[string]any)["cidr"] = netip.PrefixFrom(toLab(network.Addr()), network.Bits()).String()

	credentials := l.Credentials()
	proxmox := mapped["proxmox"].(map[string]any)
	proxmox["endpoint"] = l.Endpoint()
	// The lab's certificate is its own.
	proxmox["insecure"] = true

	if _, user := proxmox["username"]; user {
		proxmox["username"] = credentials.Username
		mapped["proxmoxPassword"] = credentials.Password
	} else {
		proxmox["tokenId"] = credentials.TokenID
		mapped["proxmoxTokenSecret"] = credentials.TokenSecret
	}

	return &Stack{Name: s.Name, Path: s.Path, values: mapped}, nil
}

// withoutSecrets replaces what is encrypted, or left to be set by hand.
func (s *Stack) withoutSecrets() *Stack {
	copied := mapText(s.values, func(text string) string { return text }).(map[string]any)

	var replace func(v any) any

	replace = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			if _, secure := v["secure"]; secure && len(v) == 1 {
				return standIn
			}

			for k := range v {
				v[k] = replace(v[k])
			}
		case []any:
			for i := range v {
				v[i] = replace(v[i])
			}
		}

		return v
	}
	replace(copied)

	if p, ok := copied["proxmox"].(map[string]any); ok {
		key := "proxmoxTokenSecret"
		if _, user := p["username"]; user {
			key = "proxmoxPassword"
		}

		if _, given := copied[key]; !given {
			copied[key] = standIn
		}
	}

	return &Stack{Name: s.Name, Path: s.Path, values: copied}
}

// withPatchesInline puts the text of patch files where their paths are, since the rehearsal runs in another directory.
func (s *Stack) withPatchesInline() (*Stack, error) {
	dir, err := os.OpenRoot(filepath.Dir(s.Path))
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // read only

	inline := func(owner any) error {
		block, _ := owner.(map[string]any)
		patches, _ := block["patches"].([]any)

		for i := range patches {
			text, _ := patches[i].(string)
			if strings.ContainsAny(text, "\n{[") || strings.Contains(text, ": ") {
				continue
			}

			content, err := dir.ReadFile(text)
			if err != nil {
				return fmt.Errorf("%s: patch %s: %w", s.Path, text, err)
			}

			patches[i] = string(content) + "\n"
		}

		return nil
	}

	owners := []any{s.values["cluster"]}
	if pools, ok := s.values["pools"].(map[string]any); ok {
		for _, pool := range pools {
			owners = append(owners, pool)
		}
	}

	for _, owner := range owners {
		if err := inline(owner); err != nil {
			return nil, err
		}
	}

	return s, nil
}

// mapText copies a tree and changes its texts.
func mapText(v any, change func(string) string) any {
	switch v := v.(type) {
	case map[string]any:
		copied := make(map[string]any, len(v))
		for k, e := range v {
			copied[k] = mapText(e, change)
		}

		return copied
	case []any:
		copied := make([]any, len(v))
		for i, e := range v {
			copied[i] = mapText(e, change)
		}

		return copied
	case string:
		return change(v)
	default:
		return v
	}
}

var ipv4 = regexp.MustCompile(`\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b`)

// mapAddresses changes the addresses inside a text that belong to the stack's network: ranges, URLs, patches.
func mapAddresses(text string, network netip.Prefix, toLab func(netip.Addr) netip.Addr) string {
	return ipv4.ReplaceAllStringFunc(text, func(found string) string {
		a, err := netip.ParseAddr(found)
		if err != nil || !network.Contains(a) {
			return found
		}

		return toLab(a).String()
	})
}
