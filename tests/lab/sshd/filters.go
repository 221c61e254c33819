package sshd

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"
)

// The small commands that scripts use, as far as they use them.

func (p *process) lines(each func(string)) {
	scanner := bufio.NewScanner(p.in)
	for scanner.Scan() {
		each(scanner.Text())
	}
}

// grep finds lines that hold a text.
func (p *process) grep() int {
	if len(p.args) != 2 || strings.HasPrefix(p.args[1], "-") || strings.ContainsAny(p.args[1], `.*[]^$\`) {
		return p.unknown("grep")
	}

	code := 1

	p.lines(func(line string) {
		if strings.Contains(line, p.args[1]) {
			code = 0

			fmt.Fprintln(p.out, line)
		}
	})

	return code
}

// cut prints one field of each line; a line without the delimiter is printed whole.
func (p *process) cut() int {
	if len(p.args) != 5 || p.args[1] != "-d" || p.args[3] != "-f" {
		return p.unknown("cut")
	}

	field, err := strconv.Atoi(p.args[4])
	if err != nil || field < 1 || p.args[2] == "" {
		return p.unknown("cut")
	}

	p.lines(func(line string) {
		fields := strings.Split(line, p.args[2])

		switch {
		case len(fields) == 1:
			fmt.Fprintln(p.out, line)
		case field <= len(fields):
			fmt.Fprintln(p.out, fields[field-1])
		default:
			fmt.Fprintln(p.out)
		}
	})

	return 0
}

// id tells who one is.
func (p *process) id() int {
	if len(p.args) != 2 || p.args[1] != "-u" {
		return p.unknown("id")
	}

	fmt.Fprintln(p.out, map[bool]int{true: 0, false: 1000}[p.root])

	return 0
}

// wc counts lines.
func (p *process) wc() int {
	if len(p.args) != 2 || p.args[1] != "-l" {
		return p.unknown("wc")
	}

	n := 0
	p.lines(func(string) { n++ })
	fmt.Fprintln(p.out, n)

	return 0
}
