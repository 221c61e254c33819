package tests

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// documents are the README and the pages, by their paths from the project.
func documents(t *testing.T) map[string]string {
	t.Helper()

	paths, err := filepath.Glob(filepath.Join(root, "stacks", "docs", "*.md"))
	require.NoError(t, err)

	texts := map[string]string{}

	for _, path := range append(paths, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)

		name, err := filepath.Rel(root, path)
		require.NoError(t, err)

		texts[name] = string(text)
	}

	return texts
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	shell   = regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```$")
	inline  = regexp.MustCompile("`((?:go|pulumi) [^`\n]+)`")
	// What ends a command in a shell, or is no word of it.
	ending = regexp.MustCompile(`\s#.*|[|;&<>)].*`)
)

// TestLinks: every link of the documents leads to a file or a heading that is there, and every page is in the index.
func TestLinks(t *testing.T) {
	t.Parallel()

	texts := documents(t)

	anchors := func(text string) (found []string) {
		for _, h := range heading.FindAllStringSubmatch(text, -1) {
			kept := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(h[1]), "")
			found = append(found, strings.ReplaceAll(kept, " ", "-"))
		}

		return found
	}

	for page, text := range texts {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}

			path := page
			if target != "" {
				path = filepath.Join(filepath.Dir(page), target)
			}

			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s links to %s, which is not there", page, m[1])
			} else if anchor != "" && !slices.Contains(anchors(texts[path]), anchor) {
				t.Errorf("%s links to %s, and %s has no such heading", page, m[1], path)
			}
		}
	}

	for page := range texts {
		name := filepath.Base(page)
		if filepath.Dir(page) == filepath.Join("stacks", "docs") && name != "README.md" {
			assert.Contains(t, texts[filepath.Join("stacks", "docs", "README.md")], "("+name+")", "the index")
		}
	}
}

// commandsOf are the commands of a page that begin with a word, in fences and between backquotes.
func commandsOf(text, word string) [][]string {
	var lines []string

	for _, m := range shell.FindAllStringSubmatch(strings.ReplaceAll(text, "\\\n", " "), -1) {
		lines = append(lines, strings.Split(m[1], "\n")...)
	}

	for _, m := range inline.FindAllStringSubmatch(shell.ReplaceAllString(text, ""), -1) {
		lines = append(lines, m[1])
	}

	var found [][]string

	begins := regexp.MustCompile(`(?:^|[\s($])` + word + `\s.*`)

	for _, line := range lines {
		if command := begins.FindString(ending.ReplaceAllString(line, "")); command != "" {
			found = append(found, strings.Fields(strings.TrimLeft(command, " ($\t")))
		}
	}

	return found
}

// TestGoCommands: what the documents run with go is there: packages, the tests that are named.
func TestGoCommands(t *testing.T) {
	t.Parallel()

	seen := 0

	for page, text := range documents(t) {
		for _, words := range commandsOf(text, "go") {
			if complaint := checkGo(words[1:]); complaint != "" {
				t.Errorf("%s: %s: %s", page, strings.Join(words, " "), complaint)
			}

			seen++
		}
	}

	assert.Greater(t, seen, 20)
}

// checkGo says what is wrong with a go command.
func checkGo(words []string) string {
	if slices.Contains([]string{"mod", "get", "list", "generate"}, words[0]) {
		return "" // of the reader's own module, or of what its files name
	}

	tests, packages := "", []string{}

	for i, word := range words[1:] {
		switch {
		case strings.HasPrefix(word, "./"):
			packages = append(packages, word)
		case word == "-run":
			tests = strings.Trim(words[i+2], "'")
		}

		// What follows the package is the program's.
		if words[0] == "run" && len(packages) > 0 {
			break
		}
	}

	if !slices.Contains([]string{"run", "test", "build", "vet"}, words[0]) || len(packages) == 0 {
		return "this is no command on a package"
	}

	for _, p := range packages {
		dir := filepath.Join(root, strings.TrimSuffix(p, "..."))

		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			return "there is no package " + p
		}

		var sources strings.Builder

		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				return err.Error()
			}

			sources.Write(text)
		}

		if words[0] == "run" && !strings.Contains(sources.String(), "\nfunc main()") {
			return p + " is no command"
		}

		if tests != "" && !regexp.MustCompile(`\nfunc (`+strings.Trim(tests, "'")+`)`).MatchString(sources.String()) {
			return "there is no test " + tests + " in " + p
		}
	}

	return ""
}

// TestPulumiCommands: what the documents run with pulumi is what the CLI knows, subcommands and flags.
func TestPulumiCommands(t *testing.T) {
	t.Parallel()

	e, err := theEngine()
	require.NoError(t, err)

	help := map[string]string{}

	ask := func(words ...string) string {
		key := strings.Join(words, " ")
		if _, asked := help[key]; !asked {
			printed, err := exec.CommandContext(t.Context(), e.CLI(), append(words, "--help")...).CombinedOutput()
			require.NoError(t, err, key)

			help[key] = string(printed)
		}

		return help[key]
	}

	seen := 0

	for page, text := range documents(t) {
		for _, words := range commandsOf(text, "pulumi") {
			path, usage := []string{}, ask()

			// Help on what is no subcommand is that of the command before it.
			for _, word := range words[1:] {
				if strings.HasPrefix(word, "-") || ask(append(path, word)...) == usage {
					break
				}

				path = append(path, word)
				usage = ask(path...)
			}

			said := fmt.Sprintf("%s: %s", page, strings.Join(words, " "))
			if len(path) == 0 {
				t.Errorf("%s: pulumi has no such command", said)

				continue
			}

			for _, word := range words[1+len(path):] {
				if flag, _, _ := strings.Cut(word, "="); strings.HasPrefix(flag, "--") && !strings.Contains(usage, flag) {
					t.Errorf("%s: there is no flag %s", said, flag)
				}
			}

			seen++
		}
	}

	assert.Greater(t, seen, 30)
}

// TestGuardedCommands: what the documents run to change a stack takes a snapshot of its state first. The state of a
// rehearsal is thrown away.
func TestGuardedCommands(t *testing.T) {
	t.Parallel()

	unguarded := regexp.MustCompile(`(?m)^\s*pulumi (up|destroy|import|refresh|state)\b.*`)

	for page, text := range documents(t) {
		if filepath.Base(page) == "practise.md" {
			continue
		}

		for _, m := range shell.FindAllStringSubmatch(text, -1) {
			for _, command := range unguarded.FindAllString(m[1], -1) {
				t.Errorf("%s: %s: write go run ./stacks/ops run ...", page, strings.TrimSpace(command))
			}
		}
	}
}

// TestSchematicIDs: an id in the documents is that of the image without extensions, the hash of what the factory is asked for.
func TestSchematicIDs(t *testing.T) {
	t.Parallel()

	plain := fmt.Sprintf("%x", sha256.Sum256([]byte("customization: {}\n")))
	seen := 0

	for page, text := range documents(t) {
		for _, id := range regexp.MustCompile(`\b[0-9a-f]{64}\b`).FindAllString(text, -1) {
			assert.Equal(t, plain, id, page)

			seen++
		}
	}

	assert.NotZero(t, seen)
}

// forbiddenWords are words and constructions that the documents do not use: a plainer term is on the right.
var forbiddenWords = map[string]string{
	`besides?`:                      "next to, in addition to, with",
	`anew`:                          "again, recreate, replace",
	`(no|some|every)body`:           "name the person or the machine",
	`amiss|unwell`:                  "unhealthy",
	`of old`:                        "previous",
	`(is|are|was|were) had`:         "use the active voice",
	`(see|sees) to (it|the|them)`:   "fix, repair",
	`what (is|was) (not )?there`:    "name the thing",
	`who (waits|comes|goes|leaves)`: "name the node",
	`vacat\w+`:                      "drain",
	`leaver|departure`:              "the node that is removed",
	`bring back|brought back`:       "restore, recover",
	`judged?`:                       "check",
	`taken? back`:                   "revert",
	`taken? down|going down`:        "disrupt",
	`(it|that|which|this|they) (is|are) no [a-km-z][a-z]*`: "is not a",
	`hence|thereby|therein|whence`:                         "so, therefore",
	`whoever|whosever`:                                     "name the person or the machine",
	`for want of`:                                          "because ... is missing",
	`lets? go of`:                                          "release",
	`will do\b`:                                            "is enough",
	`(?-i:State) ` + objects + `|(or|and|then|must|[.:;,]) \[?state ` + objects: "set a key, name a host, pass a flag",
}

// objects follow the imperative "state", and not the state of a stack.
const objects = `(its?|the|an?|both|them|(an)?others?|what|which|how)`

// TestPlainWords: the documents use plain terms. What is code, or quoted between double quotes, is the program's own text.
func TestPlainWords(t *testing.T) {
	t.Parallel()

	quotes := regexp.MustCompile("(?ms)^ *```.*?^ *```$|`[^`\n]*`|\"[^\"\n]*\"")

	for page, text := range documents(t) {
		// The lines stay, for the numbers.
		prose := quotes.ReplaceAllStringFunc(text,
			func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) })

		for pattern, instead := range forbiddenWords {
			for _, at := range regexp.MustCompile(`(?i)\b(`+pattern+`)\b`).FindAllStringIndex(prose, -1) {
				t.Errorf("%s:%d: %q: write plainly, for example: %s", page, 1+strings.Count(prose[:at[0]], "\n"),
					prose[at[0]:at[1]], instead)
			}
		}
	}
}

// TestPlainWordsInCode: code, its comments, messages and configuration use plain words, too. Goldens are what the code
// writes, and user data of K3s must stay as existing nodes got them.
func TestPlainWordsInCode(t *testing.T) {
	t.Parallel()

	words := regexp.MustCompile(`(?i)\b(beside|anew|nobody|somebody|amiss|unwell|of old|sees? to it)\b`)
	messages := regexp.MustCompile(`"[^"\n]*"`)
	ours := regexp.MustCompile(`/(components|stacks|policy)/.*\.go$`)
	isNo := regexp.MustCompile(`(^"\s*|\w+ )(is|are) no (l[^o]|[a-km-z]|P|U)\w*`) // "is no longer" is plain
	// An imperative begins a message, or a part of it. "pulumi state" and the state of a stack are none.
	state := regexp.MustCompile(`(^"|[;:.] |\b(or|then|must) )[Ss]tate ("$|%|[a-z]\w*)`)
	noun := regexp.MustCompile(`state (delete|was)$`)
	seen := 0

	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "node_modules" || entry.Name() == "states"):
			return filepath.SkipDir
		case entry.IsDir() || entry.Name() == "docs_test.go" || entry.Name() == "identifiers_test.go",
			!slices.Contains([]string{".go", ".yaml", ".yml", ".tfvars", ".sh", ".json", ".txt"}, filepath.Ext(path)):
			return nil
		}

		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}

		seen++

		if ours.MatchString(path) && !strings.HasSuffix(path, "_test.go") {
			for _, message := range messages.FindAllString(string(text), -1) {
				for _, found := range isNo.FindAllString(message, -1) {
					if !strings.HasPrefix(strings.ToLower(found), "there ") {
						t.Errorf("%s: %q: write: is not a", path, found)
					}
				}

				for _, found := range state.FindAllString(message, -1) {
					if !noun.MatchString(found) {
						t.Errorf("%s: %q: write: set, name, list or pass", path, found)
					}
				}
			}
		}

		for _, at := range words.FindAllIndex(text, -1) {
			t.Errorf("%s:%d: %q: write plainly", path, 1+bytes.Count(text[:at[0]], []byte("\n")), text[at[0]:at[1]])
		}

		return nil
	})
	require.NoError(t, err)
	assert.Greater(t, seen, 500)
}

// TestOneSentenceALine: a line of prose holds one sentence, so that a change shows as the sentences that changed.
// Tables and list items may hold several.
func TestOneSentenceALine(t *testing.T) {
	t.Parallel()

	var (
		fences = regexp.MustCompile("(?ms)^ *```.*?^ *```$|<!--.*?-->")
		prose  = regexp.MustCompile(`^[A-Z[` + "`" + `*]`)
		wrap   = regexp.MustCompile(`[^.:!?)*|>]$`)
	)

	for page, text := range documents(t) {
		text = fences.ReplaceAllStringFunc(text,
			func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) })

		for i, line := range strings.Split(text, "\n") {
			if prose.MatchString(line) && wrap.MatchString(line) {
				t.Errorf("%s:%d: a sentence ends with its line: %s", page, i+1, line)
			}
		}
	}
}

// TestFiguresNameProviders: whoever reads a figure reads what it was measured with. The providers of the tests are not
// those that operators run.
func TestFiguresNameProviders(t *testing.T) {
	t.Parallel()

	pages, err := filepath.Glob(filepath.Join(root, "stacks", "docs", "*.md"))
	require.NoError(t, err)

	var (
		dated = regexp.MustCompile(`\b(on|of) 20\d\d-\d\d-\d\d\b`)
		names = regexp.MustCompile(`bpg/proxmox \d|pulumi-proxmoxve \d|without a provider`)
		found int
	)

	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)

		for line := range strings.Lines(string(text)) {
			if dated.MatchString(line) {
				found++

				assert.Regexp(t, names, line, "%s", filepath.Base(page))
			}
		}
	}

	assert.Greater(t, found, 6)
}
