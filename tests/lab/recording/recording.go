// Package recording compares the lab with Proxmox VE: it asks a list of requests of an endpoint, and keeps the answers
// without what varies. The answers of real servers are its fixtures.
package recording

import (
	"bytes"
	"context"
	"crypto/tls"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed requests.txt cluster.txt answers
var files embed.FS

// Setup is what is asked: a host that is alone, or three in a cluster.
type Setup string

// The setups of which there are answers.
const (
	Host    Setup = "requests"
	Cluster Setup = "cluster"
)

// Answer is what a server says to a request.
type Answer struct {
	Request string `json:"request"`
	// Status is the status line, which has the text of an error.
	Status string `json:"status"`
	// Errors are the parameters that were refused, with why.
	Errors map[string]string `json:"errors,omitempty"`
	// Shape is the type of the data: for lists, of all entries together.
	Shape Shape `json:"shape,omitempty"`
	// Exit is how the task ended that the request started.
	Exit string `json:"exit,omitempty"`
}

// Shape is the type of a JSON value by its path, "[].vmid": "number".
type Shape map[string]string

// Requests are those for a version of Proxmox VE, by its first number.
func Requests(setup Setup, major int) []string {
	text, err := files.ReadFile(string(setup) + ".txt")
	if err != nil {
		panic(err) // it is embedded
	}

	var all []string

	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if since, rest, ok := strings.Cut(line, " "); ok && strings.HasPrefix(since, "@") {
			if n, err := strconv.Atoi(since[1:]); err != nil || n > major {
				continue
			}

			line = rest
		}

		if line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}

	return all
}

// Recorded are the answers of a real server of a version: "9.2.11".
func Recorded(setup Setup, version string) ([]Answer, error) {
	name := version
	if setup != Host {
		name += "-" + string(setup)
	}

	text, err := files.ReadFile("answers/" + name + ".json")
	if err != nil {
		return nil, err
	}

	var all []Answer

	return all, json.Unmarshal(text, &all)
}

// Call is a request that was recorded.
type Call struct {
	Method, Path string
	// Parameters are their names.
	Parameters []string
}

// Asked are the calls that were recorded of a version.
func Asked(version string) []Call {
	var (
		all   []Answer
		found []Call
	)

	for _, setup := range []Setup{Host, Cluster} {
		answers, err := Recorded(setup, version)
		if err == nil {
			all = append(all, answers...)
		}
	}

	for _, a := range all {
		r := parse(a.Request)
		call := Call{Method: r.method, Path: r.path}

		for parameter := range strings.SplitSeq(r.query, "&") {
			if name, _, _ := strings.Cut(parameter, "="); name != "" {
				call.Parameters = append(call.Parameters, name)
			}
		}

		found = append(found, call)
	}

	return found
}

// request is a line of requests.txt.
type request struct {
	// token is the one that the request is sent with, "user@realm!name" or "user@realm!name=secret"; nil: the server's own.
	token *string
	// patient says that it is sent until it succeeds.
	patient bool
	// upload says that it is a form with a file, embodied that its parameters are in the body.
	upload, embodied    bool
	method, path, query string
}

func parse(line string) request {
	var r request

	if rest, is := strings.CutPrefix(line, "["); is {
		token, rest, _ := strings.Cut(rest, "] ")
		r.token, line = &token, rest
	}

	r.patient = strings.HasPrefix(line, "~")
	method, rest, _ := strings.Cut(Plain(line), " ")
	r.path, r.query, _ = strings.Cut(rest, "?")
	r.method, r.embodied = strings.CutSuffix(method, "+")

	switch r.method {
	case "UPLOAD":
		r.method, r.upload = http.MethodPost, true
	case http.MethodPost, http.MethodPut:
		r.embodied = true
	}

	return r
}

// Plain is a request without the token that sends it, and without how often.
func Plain(line string) string {
	if strings.HasPrefix(line, "[") {
		_, line, _ = strings.Cut(line, "] ")
	}

	return strings.TrimPrefix(line, "~")
}

// Server is an endpoint of Proxmox VE, with the value of its header Authorization.
type Server struct {
	Endpoint, Authorization string
}

// Ask sends all requests, one after the other, and waits for the tasks that they start.
func (s Server) Ask(ctx context.Context, requests []string) ([]Answer, error) {
	files := httptest.NewServer(http.HandlerFunc(serveFile))
	defer files.Close()

	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // servers on loopback sign their own
	}}
	defer client.CloseIdleConnections()

	var (
		all []Answer
		c   = &conversation{
			server: s, client: client, files: strings.TrimPrefix(files.URL, "http://"), secrets: map[string]string{},
		}
	)

	for _, line := range requests {
		a, err := c.ask(ctx, line)
		if err != nil {
			return all, fmt.Errorf("%s: %w", line, err)
		}

		all = append(all, a)
	}

	return all, nil
}

// conversation is what a server is asked, and what of its answers later requests need.
type conversation struct {
	server Server
	client *http.Client
	// files is where there are files to download.
	files string
	// secrets are those of the tokens that were made.
	secrets map[string]string
	// task is the last one that was started.
	task string
}

// patience is how long a request is repeated, and pause how long it waits in between.
const patience, pause = time.Minute, 100 * time.Millisecond

func (c *conversation) ask(ctx context.Context, line string) (Answer, error) {
	r := parse(line)
	begun := time.Now()

	reply, status, err := c.send(ctx, r)
	for err == nil && r.patient && reply.code != http.StatusOK && time.Since(begun) < patience {
		if err = sleep(ctx); err == nil {
			reply, status, err = c.send(ctx, r)
		}
	}

	if err != nil {
		return Answer{}, err
	}

	a := Answer{Request: line, Status: c.plain(status), Shape: Shape{}}

	for field, why := range reply.Errors {
		if a.Errors == nil {
			a.Errors = map[string]string{}
		}

		a.Errors[field] = c.plain(why)
	}

	switch data := reply.Data.(type) {
	case string:
		if strings.HasPrefix(data, "UPID:") {
			a.Shape[""], c.task = "task", data
			a.Exit, err = c.wait(ctx, data)

			return a, err
		}
	case map[string]any:
		if id, is := data["full-tokenid"].(string); is {
			c.secrets[id], _ = data["value"].(string)
		}
	}

	a.Shape.add("", reply.Data)

	return a, nil
}

type reply struct {
	Data   any               `json:"data"`
	Errors map[string]string `json:"errors"`
	code   int
}

// authorization is the value of the header for a request; empty: it has none.
func (c *conversation) authorization(r request) string {
	switch {
	case r.token == nil:
		return c.server.Authorization
	case *r.token == "":
		return ""
	case strings.Contains(*r.token, "="):
		return "PVEAPIToken=" + *r.token
	default:
		return "PVEAPIToken=" + *r.token + "=" + c.secrets[*r.token]
	}
}

func (c *conversation) send(ctx context.Context, r request) (reply, string, error) {
	var (
		body  io.Reader
		kind  = "application/x-www-form-urlencoded"
		fill  = strings.NewReplacer("$UPID", url.PathEscape(c.task), "$FILES", c.files)
		path  = fill.Replace(r.path)
		query = fill.Replace(r.query)
	)

	switch {
	case r.upload:
		var err error
		if body, kind, err = fileForm(query); err != nil {
			return reply{}, "", err
		}
	case r.embodied:
		body = strings.NewReader(query)
	case query != "":
		path += "?" + query
	}

	q, err := http.NewRequestWithContext(ctx, r.method, c.server.Endpoint+"/api2/json"+path, body)
	if err != nil {
		return reply{}, "", err
	}

	if authorization := c.authorization(r); authorization != "" {
		q.Header.Set("Authorization", authorization)
	}

	if body != nil {
		q.Header.Set("Content-Type", kind)
	}

	response, err := c.client.Do(q)
	if err != nil {
		return reply{}, "", err
	}
	defer response.Body.Close()

	text, err := io.ReadAll(response.Body)
	if err != nil {
		return reply{}, "", err
	}

	found := reply{code: response.StatusCode}

	if len(bytes.TrimSpace(text)) > 0 {
		// What the server itself refuses, before the API is asked, is plain text.
		if err := json.Unmarshal(text, &found); err != nil && response.StatusCode < http.StatusBadRequest {
			return reply{}, "", fmt.Errorf("%s: %w", response.Status, err)
		}
	}

	return found, response.Status, nil
}

// fileForm is a form with a small file, whose name is in the parameter "file".
func fileForm(query string) (io.Reader, string, error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, "", err
	}

	var (
		b    bytes.Buffer
		form = multipart.NewWriter(&b)
	)

	for _, name := range slices.Sorted(maps.Keys(values)) {
		if name != "file" {
			err = errors.Join(err, form.WriteField(name, values.Get(name)))
		}
	}

	file, creation := form.CreateFormFile("filename", values.Get("file"))
	if creation == nil {
		_, creation = file.Write(content)
	}

	return &b, form.FormDataContentType(), errors.Join(err, creation, form.Close())
}

// content is that of every file.
var content = make([]byte, 4096)

// serveFile answers with a file, whatever its name, unless that begins with "none".
func serveFile(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/none") {
		http.NotFound(w, r)

		return
	}

	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	_, _ = w.Write(content)
}

func sleep(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pause):
		return nil
	}
}

// wait returns how a task ends.
func (c *conversation) wait(ctx context.Context, upid string) (string, error) {
	status := parse("GET /nodes/" + strings.Split(upid, ":")[1] + "/tasks/" + url.PathEscape(upid) + "/status")

	for range 600 {
		found, line, err := c.send(ctx, status)
		if err != nil {
			return "", err
		}

		task, _ := found.Data.(map[string]any)
		if task["status"] == "stopped" {
			exit, _ := task["exitstatus"].(string)

			return c.plain(exit), nil
		}

		if task == nil {
			return "", fmt.Errorf("task %s: %s", upid, line)
		}

		if err := sleep(ctx); err != nil {
			return "", err
		}
	}

	return "", fmt.Errorf("task %s does not end", upid)
}

// varying is what is another one each time.
var varying = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`UPID:[^\s']+`), "UPID"},
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`[0-9a-f]{40}`), "DIGEST"},
	{regexp.MustCompile(`tmp_dwnl\.\d+`), "tmp_dwnl.PID"},
	{regexp.MustCompile(` at /\S+ line \d+\.?.*`), " at PLACE"},
}

// plain is a text of one line without what varies.
func (c *conversation) plain(text string) string {
	text = strings.ReplaceAll(strings.Join(strings.Fields(text), " "), c.files, "FILES")
	for _, v := range varying {
		text = v.pattern.ReplaceAllString(text, v.with)
	}

	return text
}

// byName are lists of objects by a name of their own: the name is no part of the shape.
var byName = regexp.MustCompile(`^(/|vm:|\d)`)

func (s Shape) add(path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		s.merge(path, "object")

		for _, key := range slices.Sorted(maps.Keys(value)) {
			name := key
			if byName.MatchString(key) {
				name = "*"
			}

			s.add(path+"."+name, value[key])
		}
	case []any:
		s.merge(path, "list")

		for _, entry := range value {
			s.add(path+"[]", entry)
		}
	case string:
		s.merge(path, "text")
	case float64:
		s.merge(path, "number")
	case bool:
		s.merge(path, "bool")
	case nil:
		s.merge(path, "null")
	}
}

// merge adds a type to those that were seen at a path.
func (s Shape) merge(path, kind string) {
	kinds := strings.Fields(s[path])
	if !slices.Contains(kinds, kind) {
		kinds = append(kinds, kind)
	}

	slices.Sort(kinds)
	s[path] = strings.Join(kinds, " ")
}

// Differences are what an answer says otherwise than the recorded one: another status, other errors, another end of a
// task, keys that the recorded one does not have or of another type, and keys that it has and the answer lacks.
func (a Answer) Differences(recorded Answer) []string {
	var found []string

	differ := func(what string, is, want any) {
		if fmt.Sprint(is) != fmt.Sprint(want) {
			found = append(found, fmt.Sprintf("%s is %q, recorded: %q", what, fmt.Sprint(is), fmt.Sprint(want)))
		}
	}

	differ("status", a.Status, recorded.Status)
	differ("errors", a.Errors, recorded.Errors)
	differ("exit", a.Exit, recorded.Exit)

	for _, path := range slices.Sorted(maps.Keys(a.Shape)) {
		for kind := range strings.FieldsSeq(a.Shape[path]) {
			if !slices.Contains(strings.Fields(recorded.Shape[path]), kind) {
				found = append(found, fmt.Sprintf("%q is a %s, recorded: %q", path, kind, recorded.Shape[path]))
			}
		}
	}

	if a.Status == recorded.Status {
		for _, path := range slices.Sorted(maps.Keys(recorded.Shape)) {
			if _, has := a.Shape[path]; !has && a.has(parent(path)) {
				found = append(found, fmt.Sprintf("%q is missing, recorded: %q", path, recorded.Shape[path]))
			}
		}
	}

	return found
}

// has says that there is something at a path of the data.
func (a Answer) has(path string) bool { return a.Shape[path] != "" }

// parent is the path that a path is below.
func parent(path string) string {
	if list, is := strings.CutSuffix(path, "[]"); is {
		return list
	}

	return path[:max(strings.LastIndex(path, "."), 0)]
}
