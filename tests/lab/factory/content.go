package factory

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
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
// decompressed, but for xz. The image has a size, what it is a compressed form of has another, and the disk a third.
func (a Asset) content(size, plain, disk int64) io.Reader {
	inside := a
	inside.Compression = ""
	begin := a.begin(disk)

	switch a.Compression {
	case "zst":
		begin = zstd(a.line(), inside.begin(disk), plain, size)
	case "gz":
		begin = gz(a.line(), inside.begin(disk), plain, size)
	case "tar.gz":
		// What is in the archive says that it is one still: nothing boots from it.
		begin = gz(a.line(), archived(padded(a.line()), plain), archiveSize(plain), size)
	}

	return io.MultiReader(bytes.NewReader(begin), io.LimitReader(zeros{}, size-int64(len(begin))))
}

// begin is how an image begins that holds a disk of a size.
func (a Asset) begin(disk int64) []byte {
	if a.QCOW2 && a.Compression == "" {
		return qcow2(a.line(), disk)
	}

	return padded(a.line())
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

// zstd is a stream that decompresses to an image: its beginning as it is, and blocks that each stand for zeros. Around
// it are parts that a decompressor skips: one that says what the file is, and one that makes it as large as a real one.
func zstd(line, begin []byte, plain, size int64) []byte {
	b := skippable(int64(len(line)))
	b = append(b, line...)
	b = binary.LittleEndian.AppendUint32(b, zstdFrame)
	b = append(b, 0, zstdWindow)

	block := func(kind, length int64, last bool) {
		header := kind<<1 | length<<3
		if last {
			header |= 1
		}

		b = append(b, byte(header), byte(header>>8), byte(header>>16))
	}

	block(0, int64(len(begin)), false)
	b = append(b, begin...)

	for left := plain - int64(len(begin)); left > 0; left -= zstdBlock {
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

const (
	// gzipRun is how many zeros one member of a stream stands for.
	gzipRun = 8 << 20
	// gzipExtra is the most that the header of a member can hold, gzipEmpty the size of one that holds nothing.
	gzipExtra, gzipEmpty = 1<<16 - 1, 25
)

// gz is a stream of members (RFC 1952) that decompresses to an image: its beginning, which says in its header what the
// file is, members that stand for zeros, and members with nothing but a long header, which make it as large as a real
// one.
func gz(line, begin []byte, plain, size int64) []byte {
	b := gzipMember(line, begin)
	run := gzipMember(nil, make([]byte, gzipRun))
	left := plain - int64(len(begin))

	for ; left >= gzipRun; left -= gzipRun {
		b = append(b, run...)
	}

	if left > 0 {
		b = append(b, gzipMember(nil, make([]byte, left))...)
	}

	for rest := size - int64(len(b)); rest > gzipEmpty; rest = size - int64(len(b)) {
		extra := min(rest-gzipEmpty, gzipExtra)
		// What is left is room for another member, or nothing.
		if after := rest - gzipEmpty - extra; after > 0 && after <= gzipEmpty {
			extra -= 2 * gzipEmpty
		}

		b = append(b, gzipMember(make([]byte, extra), nil)...)
	}

	return b
}

func gzipMember(extra, data []byte) []byte {
	var b bytes.Buffer

	w := gzip.NewWriter(&b)
	if len(extra) > 0 {
		w.Extra = extra
	}

	_, _ = w.Write(data) // a buffer takes all
	_ = w.Close()

	return b.Bytes()
}

// archived is the beginning of an archive with a disk of a size in it.
func archived(begin []byte, size int64) []byte {
	var b bytes.Buffer

	w := tar.NewWriter(&b)
	_ = w.WriteHeader(&tar.Header{Name: "disk.raw", Mode: 0o644, Size: size}) // a buffer takes all
	_, _ = w.Write(begin)

	return b.Bytes()
}

// archiveSize is that of an archive with a file of a size: a header, the file in whole blocks, and two empty ones.
func archiveSize(size int64) int64 { return (3 + (size+HeadSize-1)/HeadSize) * HeadSize }

// smallest is the size below which an image would lack a part.
func (a Asset) smallest(plain, disk int64) int64 {
	if a.Compression == "" || a.Compression == "xz" {
		return HeadSize
	}

	begin := make([]byte, HeadSize)
	if a.Compression == "zst" {
		return int64(len(zstd(a.line(), begin, plain, 0))) + 8
	}

	return int64(len(gz(a.line(), begin, archiveSize(plain), 0))) + gzipEmpty + HeadSize
}

// zeros are read without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)

	return len(p), nil
}
