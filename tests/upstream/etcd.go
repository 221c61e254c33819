package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// MemberConfig is what one member of etcd is started with.
type MemberConfig struct {
	// Name of the member, and of its directory below Dir.
	Name, Dir string
	// Address is a loopback address of its own; its ports are etcd's.
	Address string
	// Cluster has the addresses of all members by name; nil: it is the only one.
	Cluster map[string]string
	// Joins says that the others are a cluster already.
	Joins bool
	// Quota is how many bytes the database may have; 0: etcd's default.
	Quota int64
}

func (c MemberConfig) home() string { return filepath.Join(c.Dir, c.Name) }

// Data is the directory of the member's data.
func (c MemberConfig) Data() string { return filepath.Join(c.home(), "data") }

// Member is a running member of etcd.
type Member struct {
	*Process
	Config MemberConfig
	http   *http.Client
}

// StartMember starts a member of etcd, and waits until its API answers.
func (b *Binary) StartMember(ctx context.Context, c MemberConfig) (*Member, error) {
	all := c.Cluster
	if all == nil {
		all = map[string]string{c.Name: c.Address}
	}

	state := "new"
	if c.Joins {
		state = "existing"
	}

	var initial []string
	for name, address := range all {
		initial = append(initial, name+"="+PeerURL(address))
	}

	dir := c.home()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}

	args := []string{
		"--name=" + c.Name, "--data-dir=data",
		"--listen-client-urls=" + clientURL(c.Address), "--advertise-client-urls=" + clientURL(c.Address),
		"--listen-peer-urls=" + PeerURL(c.Address), "--initial-advertise-peer-urls=" + PeerURL(c.Address),
		"--initial-cluster=" + strings.Join(initial, ","), "--initial-cluster-state=" + state,
		"--unsafe-no-fsync", "--heartbeat-interval=200", "--election-timeout=2000",
		"--quota-backend-bytes=" + strconv.FormatInt(c.Quota, 10), "--log-level=warn",
		// As Talos has it (Talos: internal/app/machined/pkg/system/services/etcd.go), under the names of etcd 3.6.
		"--feature-gates=InitialCorruptCheck=true,CompactHashCheck=true", "--watch-progress-notify-interval=5s",
		"--compact-hash-check-time=1s", // of Talos it is a minute
	}

	p, err := b.start(dir, "etcd", args...)
	if err != nil {
		return nil, err
	}

	m := &Member{Process: p, Config: c, http: &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second}}

	// A learner answers this, and so does a member without a quorum.
	if err := p.await(ctx, func() error { return m.Call(ctx, "maintenance/status", nil, nil) }); err != nil {
		p.Stop()

		return nil, err
	}

	return m, nil
}

func clientURL(address string) string { return "http://" + net.JoinHostPort(address, "2379") }

// PeerURL is where a member at an address is reached by the others.
func PeerURL(address string) string { return "http://" + net.JoinHostPort(address, "2380") }

// Error is what etcd answers instead: a code of gRPC, and a text.
type Error struct {
	Code    uint32 `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// Call calls the API of a member, in JSON. In is what is sent, out what the answer is read into; nil: nothing.
func (m *Member) Call(ctx context.Context, method string, in, out any) error {
	return m.call(ctx, method, in, out, false)
}

// CallLed is a call that wants a leader, as Talos does for what concerns the members.
func (m *Member) CallLed(ctx context.Context, method string, in, out any) error {
	return m.call(ctx, method, in, out, true)
}

func (m *Member) call(ctx context.Context, method string, in, out any, led bool) error {
	if in == nil {
		in = struct{}{}
	}

	body, err := json.Marshal(in)
	if err != nil {
		return err
	}

	r, err := http.NewRequestWithContext(ctx, http.MethodPost, clientURL(m.Config.Address)+"/v3/"+method,
		bytes.NewReader(body))
	if err != nil {
		return err
	}

	if led {
		r.Header.Set("Grpc-Metadata-Hasleader", "true")
	}

	answer, err := m.http.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()

	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}

	if answer.StatusCode != http.StatusOK {
		var refused Error
		if json.Unmarshal(text, &refused) != nil || refused.Message == "" {
			return fmt.Errorf("%s: %s: %s", method, answer.Status, text)
		}

		return &refused
	}

	if out == nil {
		return nil
	}

	return json.Unmarshal(text, out)
}

// MemberInfo is a member as a list of them has it.
type MemberInfo struct {
	ID         uint64   `json:"ID,string"`
	Name       string   `json:"name"`
	PeerURLs   []string `json:"peerURLs"`
	ClientURLs []string `json:"clientURLs"`
	IsLearner  bool     `json:"isLearner"`
}

// MemberList is what a list of members, and an addition, is answered with.
type MemberList struct {
	Member  MemberInfo   `json:"member"` // that was added
	Members []MemberInfo `json:"members"`
}

// LearnerAt is a request that adds a member at an address, without a vote.
func LearnerAt(address string) map[string]any {
	return map[string]any{"peerURLs": []string{PeerURL(address)}, "isLearner": true}
}

// MemberOf is a request that names a member.
func MemberOf(id uint64) map[string]any { return map[string]any{"ID": strconv.FormatUint(id, 10)} }

// Address is where the others reach it, empty if that cannot be told.
func (m MemberInfo) Address() string {
	if len(m.PeerURLs) == 0 {
		return ""
	}

	u, err := url.Parse(m.PeerURLs[0])
	if err != nil {
		return ""
	}

	return u.Hostname()
}

// Status is what a member says of itself.
type Status struct {
	Header struct {
		MemberID uint64 `json:"member_id,string"`
	} `json:"header"`
	Version          string   `json:"version"`
	StorageVersion   string   `json:"storageVersion"`
	DBSize           int64    `json:"dbSize,string"`
	DBSizeInUse      int64    `json:"dbSizeInUse,string"`
	Leader           uint64   `json:"leader,string"`
	RaftIndex        uint64   `json:"raftIndex,string"`
	RaftAppliedIndex uint64   `json:"raftAppliedIndex,string"`
	RaftTerm         uint64   `json:"raftTerm,string"`
	Errors           []string `json:"errors"`
	IsLearner        bool     `json:"isLearner"`
}

// Status asks a member how it is. It answers without a quorum, too.
func (m *Member) Status(ctx context.Context) (*Status, error) {
	st := &Status{}

	return st, m.Call(ctx, "maintenance/status", nil, st)
}

// Health says why the member is not well, in the way of Talos and etcdctl: by a read that needs the quorum.
func (m *Member) Health(ctx context.Context) error {
	return m.CallLed(ctx, "kv/range", HealthKey(), nil)
}

// HealthKey is a request that concerns a key which Kubernetes does not have.
func HealthKey() map[string]any { return map[string]any{"key": []byte("health")} }

// Changed is what a change of the objects is answered with.
type Changed struct {
	Header struct {
		Revision string `json:"revision"`
	} `json:"header"`
}

// Snapshot is a snapshot of what the member stores: its database, and the hash of that.
func (m *Member) Snapshot(ctx context.Context) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, clientURL(m.Config.Address)+"/v3/maintenance/snapshot",
		strings.NewReader("{}"))
	if err != nil {
		return nil, err
	}

	answer, err := m.http.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()

	var out []byte

	for parts := json.NewDecoder(answer.Body); ; {
		var part struct {
			Result struct {
				Blob []byte `json:"blob"`
			} `json:"result"`
			Error *Error `json:"error"`
		}

		switch err := parts.Decode(&part); {
		case err == io.EOF:
			return out, nil
		case err != nil:
			return nil, err
		case part.Error != nil:
			return nil, part.Error
		}

		out = append(out, part.Result.Blob...)
	}
}
