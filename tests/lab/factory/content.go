package factory

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
)

// magic is in the beginning of each image of the lab. Real ones have other text there, but the lab's hosts and machines
// must recognise what they downloaded.
const magic = "lab talos image "

// HeadSize is how much of an image Identify needs.
const HeadSize = 512

// line says what the image is.
func (a Asset) line() []byte {
	if a.Foreign != "" {
		return []byte(a.Foreign)
	}

	return fmt.Appendf(nil, "%s%s %s %s\n", magic, a.Schematic, a.Version, a.File())
}

// Identify tells from the beginning of a file which image it is.
func Identify(head []byte) (Asset, bool) {
	_, text, ok := bytes.Cut(head, []byte(magic))
	if !ok {
		return Asset{}, false
	}

	line, _, ok := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)

	if !ok || len(fields) != 3 {
		return Asset{}, false
	}

	a, err := ParseFile(fields[0], fields[1], fields[2])

	return a, err == nil
}

// content is an image as a stream: what it is, and zeros, which cost nothing to make. A compressed one can be
// decompressed.
func (a Asset) content(size, raw int64) io.Reader {
	begin := padded(a.line())

	switch {
	case a.QCOW2:
		begin = qcow2(a.line(), raw)
	case a.Compression == "zst":
		begin = zstd(a, raw, size)
	}

	return io.MultiReader(bytes.NewReader(begin), io.LimitReader(zeros{}, size-int64(len(begin))))
}

func padded(line []byte) []byte { return append(line, make([]byte, HeadSize-len(line))...) }

// qcow2 is the header of QEMU's format, version 3, which says how large the disk in it is (QEMU:
// docs/interop/qcow2.txt).
func qcow2(line []byte, size int64) []byte {
	b := []byte("QFI\xfb")
	b = binary.BigEndian.AppendUint32(b, 3)            // version
	b = append(b, make([]byte, 12)...)                 // no backing file
	b = binary.BigEndian.AppendUint32(b, 16)           // clusters of 64 KiB
	b = binary.BigEndian.AppendUint64(b, uint64(size)) // of the disk
	b = append(b, make([]byte, 104-len(b))...)

	return padded(append(b, line...))
}

// The parts of a Zstandard stream (RFC 8878).
const (
	zstdFrame     = 0xFD2FB528
	zstdSkippable = 0x184D2A50
	zstdWindow    = 7 << 3 // 128 KiB, which is also the largest block
	zstdBlock     = 128 << 10
)

// zstd is a stream that decompresses to the raw image: its beginning as it is, and blocks that each stand for zeros.
// Around it are parts that a decompressor skips: one that says what the file is, and one that makes it as large as a
// real one.
func zstd(a Asset, raw, size int64) []byte {
	inside := a
	inside.Compression = ""

	b := skippable(int64(len(a.line())))
	b = append(b, a.line()...)
	b = binary.LittleEndian.AppendUint32(b, zstdFrame)
	b = append(b, 0, zstdWindow)

	block := func(kind, length int64, last bool) {
		header := kind<<1 | length<<3
		if last {
			header |= 1
		}

		b = append(b, byte(header), byte(header>>8), byte(header>>16))
	}

	block(0, HeadSize, false)
	b = append(b, padded(inside.line())...)

	for left := raw - HeadSize; left > 0; left -= zstdBlock {
		block(1, min(left, zstdBlock), false)
		b = append(b, 0)
	}

	block(0, 0, true)

	if rest := size - int64(len(b)); rest >= 8 {
		b = append(b, skippable(rest-8)...)
	}

	return b
}

func skippable(length int64) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, zstdSkippable), uint32(length))
}

// smallest is the size below which an image would lack a part.
func (a Asset) smallest(raw int64) int64 {
	if a.Compression == "zst" {
		return int64(len(zstd(a, raw, 0))) + 8
	}

	return HeadSize
}

// zeros are read without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)

	return len(p), nil
}
