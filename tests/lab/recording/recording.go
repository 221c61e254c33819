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
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

//go:embed requests.txt answers
var files embed.FS

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
func Requests(major int) []string {
	text, err := files.ReadFile("requests.txt")
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
func Recorded(version string) ([]Answer, error) {
	text, err := files.ReadFile("answers/" + version + ".json")
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
	all, err := Recorded(version)
	if err != nil {
		return nil
	}

	var found []Call

	for _, a := range all {
		request, query, _ := strings.Cut(a.Request, "?")
		method, path, _ := strings.Cut(request, " ")

		if method = strings.TrimSuffix(method, "+"); method == "UPLOAD" {
			method = http.MethodPost
		}

		call := Call{Method: method, Path: path}

		for parameter := range strings.SplitSeq(query, "&") {
			if name, _, _ := strings.Cut(parameter, "="); name != "" {
				call.Parameters = append(call.Parameters, name)
			}
		}

		found = append(found, call)
	}

	return found
}

// Server is an endpoint of Proxmox VE, with the value of its header Authorization.
type Server struct {
	Endpoint, Authorization string
}

// Ask sends all requests, one after the other, and waits for the tasks that they start.
func (s Server) Ask(ctx context.Context, requests []string) ([]Answer, error) {
	c := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // servers on loopback sign their own
	}}
	defer c.CloseIdleConnections()

	var all []Answer

	for _, request := range requests {
		a, err := s.ask(ctx, c, request)
		if err != nil {
			return all, fmt.Errorf("%s: %w", request, err)
		}

		all = append(all, a)
	}

	return all, nil
}

func (s Server) ask(ctx context.Context, c *http.Client, request string) (Answer, error) {
	reply, status, err := s.send(ctx, c, request)
	if err != nil {
		return Answer{}, err
	}

	a := Answer{Request: request, Status: plain(status), Shape: Shape{}}

	for field, why := range reply.Errors {
		if a.Errors == nil {
			a.Errors = map[string]string{}
		}

		a.Errors[field] = plain(why)
	}

	if upid, is := reply.Data.(string); is && strings.HasPrefix(upid, "UPID:") {
		a.Shape[""] = "task"
		a.Exit, err = s.wait(ctx, c, upid)

		return a, err
	}

	a.Shape.add("", reply.Data)

	return a, nil
}

type reply struct {
	Data   any               `json:"data"`
	Errors map[string]string `json:"errors"`
}

func (s Server) send(ctx context.Context, c *http.Client, request string) (reply, string, error) {
	method, rest, _ := strings.Cut(request, " ")
	path, query, _ := strings.Cut(rest, "?")
	method, embodied := strings.CutSuffix(method, "+")

	var (
		body io.Reader
		kind = "application/x-www-form-urlencoded"
	)

	switch {
	case method == "UPLOAD":
		method = http.MethodPost

		var err error
		if body, kind, err = fileForm(query); err != nil {
			return reply{}, "", err
		}
	case method == http.MethodPost || method == http.MethodPut || embodied:
		body = strings.NewReader(query)
	case query != "":
		path += "?" + query
	}

	r, err := http.NewRequestWithContext(ctx, method, s.Endpoint+"/api2/json"+path, body)
	if err != nil {
		return reply{}, "", err
	}

	r.Header.Set("Authorization", s.Authorization)

	if body != nil {
		r.Header.Set("Content-Type", kind)
	}

	response, err := c.Do(r)
	if err != nil {
		return reply{}, "", err
	}
	defer response.Body.Close()

	text, err := io.ReadAll(response.Body)
	if err != nil {
		return reply{}, "", err
	}

	var found reply

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
		_, creation = file.Write(make([]byte, 4096))
	}

	return &b, form.FormDataContentType(), errors.Join(err, creation, form.Close())
}

// wait returns how a task ends.
func (s Server) wait(ctx context.Context, c *http.Client, upid string) (string, error) {
	path := "GET /nodes/" + strings.Split(upid, ":")[1] + "/tasks/" + url.PathEscape(upid) + "/status"

	for range 600 {
		found, status, err := s.send(ctx, c, path)
		if err != nil {
			return "", err
		}

		task, _ := found.Data.(map[string]any)
		if task["status"] == "stopped" {
			exit, _ := task["exitstatus"].(string)

			return plain(exit), nil
		}

		if task == nil {
			return "", fmt.Errorf("task %s: %s", upid, status)
		}

		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(100 * time.Millisecond):
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
	{regexp.MustCompile(` at /\S+ line \d+\.?.*`), " at PLACE"},
}

// plain is a text of one line without what varies.
func plain(text string) string {
	text = strings.Join(strings.Fields(text), " ")
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
