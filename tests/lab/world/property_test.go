package world

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPropertyStrings(t *testing.T) {
	p, ok := parseProperties("tank:vm-1-disk-0,size=40G,aio=native,", "file")
	require.True(t, ok)
	require.Equal(t, "tank:vm-1-disk-0,aio=native,size=40G", p.print("file"))

	p, ok = parseProperties("file=none,media=cdrom", "file")
	require.True(t, ok)
	require.Equal(t, "none,media=cdrom", p.print("file"))

	_, ok = parseProperties("size=1,size=2", "file")
	require.False(t, ok)
}

func TestWhatIsPrintedIsReadTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := properties(rapid.MapOf(rapid.StringMatching(`[a-z]{1,5}`), rapid.StringMatching(`[a-z0-9:;/-]{1,8}`)).Draw(t,
			"properties"))

		again, ok := parseProperties(p.print("file"), "file")
		require.True(t, ok)
		require.Equal(t, p, again)
	})
}

func TestSizes(t *testing.T) {
	for text, bytes := range map[string]int64{
		"40G": 40 * GiB, "4M": 4 * MiB, "528K": 528 << 10, "1T": 1 << 40,
		"1000": 1000, "2052M": 2052 * MiB,
	} {
		n, ok := parseSize(text)
		require.True(t, ok)
		require.Equal(t, bytes, n)
		require.Equal(t, text, formatSize(bytes))
	}

	require.Equal(t, "20G", formatSize(21474836480))

	n, ok := parseSize("0.5G")
	require.True(t, ok)
	require.Equal(t, 512*MiB, n)

	_, ok = parseSize("x")
	require.False(t, ok)
}

func TestOptionNames(t *testing.T) {
	for key, known := range map[string]bool{
		"cores": true, "net0": true, "net31": true, "net32": false, "net": false, "net01": false, "scsi30": true,
		"scsi31": false, "scsihw": true,
		"smbios1": true, "numa": true, "numa0": true, "numa8": false, "efidisk0": true, "efidisk1": false, "hostpci15": true,
		"boot": true, "boot0": false,
		"": false, "7": false, "amd-sev": true,
	} {
		require.Equal(t, known, IsOption(key), key)
	}
}
