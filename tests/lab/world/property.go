package world

import (
	"slices"
	"strconv"
	"strings"
)

// properties is a property string, "tank:vm-401-disk-0,size=40G": a value without a key, which belongs to the default
// key, and pairs. Proxmox VE prints the default key's value first and the rest sorted.
type properties map[string]string

// parseProperties reads a property string. An empty part, as in a trailing comma, is skipped as Proxmox VE skips it.
func parseProperties(text, defaultKey string) (properties, bool) {
	p := properties{}

	for part := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}

		key, value, pair := strings.Cut(part, "=")
		if !pair {
			key, value = defaultKey, part
		}

		if _, twice := p[key]; twice || key == "" {
			return nil, false
		}

		p[key] = value
	}

	return p, true
}

func (p properties) print(defaultKey string) string {
	var parts []string

	if v, ok := p[defaultKey]; ok {
		parts = append(parts, v)
	}

	for _, key := range sortedKeys(p) {
		if key != defaultKey {
			parts = append(parts, key+"="+p[key])
		}
	}

	return strings.Join(parts, ",")
}

// splitList reads Proxmox VE's lists, which may be separated by commas, semicolons, spaces or NUL.
func splitList(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(",; \t\n\x00", r) })
}

// uniqueTags is how Proxmox VE keeps tags: small, each once, in order, separated by semicolons.
func uniqueTags(text string) string {
	tags := splitList(strings.ToLower(text))
	slices.Sort(tags)

	return strings.Join(slices.Compact(tags), ";")
}

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{{"T", 1 << 40}, {"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10}}

// parseSize reads "40G", "528K" or plain bytes.
func parseSize(text string) (int64, bool) {
	factor := int64(1)

	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(text, u.suffix); ok {
			text, factor = rest, u.bytes
		}
	}

	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n < 0 {
		return 0, false
	}

	return int64(n * float64(factor)), true
}

// formatSize prints a size in the largest unit that divides it.
func formatSize(size int64) string {
	for _, u := range sizeUnits {
		if size >= u.bytes && size%u.bytes == 0 {
			return strconv.FormatInt(size/u.bytes, 10) + u.suffix
		}
	}

	return strconv.FormatInt(size, 10)
}
