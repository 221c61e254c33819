package faults

import (
	"net/http"
	"regexp"
	"time"

	"talos-proxmox/tests/lab/journal"
)

// Effect is what happens to a call.
type Effect string

// The effects.
const (
	// Refused calls get an error of the server's own: status 500 with Proxmox VE's reason, gRPC's Unavailable, an exit
	// status.
	Refused Effect = "refused"
	// Reset connections are closed before anything is done.
	Reset Effect = "reset"
	// Unanswered calls are carried out, and the connection is closed instead of an answer.
	Unanswered Effect = "unanswered"
	// TimedOut calls are not carried out; nothing is answered for longer than the program's own look-ups wait.
	TimedOut Effect = "timed out"
	// TaskFailed is a task that ends with an error and has done nothing.
	TaskFailed Effect = "task failed"
	// TaskFailedLate is a task that ends with an error and has done its work: the VM runs all the same.
	TaskFailedLate Effect = "task failed late"
	// Locked VMs are under a backup.
	Locked Effect = "locked"
	// Busy VMs have their configuration file locked for too long.
	Busy Effect = "busy"
	// Taken VMIDs belong to a foreign VM, made just before the call.
	Taken Effect = "taken"
	// Truncated images end in the middle.
	Truncated Effect = "truncated"
	// Replaced images are pages that say something else.
	Replaced Effect = "replaced"
	// Unauthorized calls get 401, as with a token that has expired, and Denied ones 403.
	Unauthorized Effect = "unauthorized"
	Denied       Effect = "denied"
	// Throttled calls get 429, and are asked to wait for a second.
	Throttled Effect = "throttled"
	// BadGateway and Page are what a proxy says instead of the server: 502, 503 or 504, which the case decides, or a page
	// with 200.
	BadGateway Effect = "bad gateway"
	Page       Effect = "page"
	// HalfAnswer calls are carried out, and the connection ends in the middle of the answer; HeldAnswer calls are not,
	// and nothing follows the beginning of the answer for longer than the program's own look-ups wait.
	HalfAnswer Effect = "half an answer"
	HeldAnswer Effect = "held answer"
	// TaskHangs is a task that does nothing for a while before its work.
	TaskHangs Effect = "task hangs"
)

// stall is longer than proxmoxapi waits for an answer.
const stall = 12 * time.Second

// page is what a proxy shows to a browser.
const page = "<html><title>Service Temporarily Unavailable</title></html>"

// plants are the faults that bring the effects about. Taken is the harness's own.
var plants = map[Effect]journal.Fault{
	Refused:        {Kind: journal.Refuse, Message: "cluster not ready - no quorum?"},
	Reset:          {Kind: journal.Reset},
	Unanswered:     {Kind: journal.LoseReply},
	TimedOut:       {Kind: journal.Stall, For: stall},
	TaskFailed:     {Kind: journal.FailTask, Message: "zfs error: cannot create 'tank/vm-disk': out of space"},
	TaskFailedLate: {Kind: journal.FailTaskLate, Message: "command '/usr/bin/qemu' failed: received interrupt"},
	Locked:         {Kind: journal.Refuse, Message: "VM is locked (backup)"},
	Busy:           {Kind: journal.Refuse, Message: "can't lock file '/var/lock/qemu-server/lock-vm.conf' - got timeout"},
	Taken:          {Kind: journal.Interfere},
	Truncated:      {Kind: journal.Truncate},
	Replaced:       {Kind: journal.Replace, Message: "<html>Not Found</html>"},
	Unauthorized:   {Kind: journal.Answer, Code: http.StatusUnauthorized},
	Denied:         {Kind: journal.Answer, Code: http.StatusForbidden},
	Throttled: {
		Kind: journal.Answer, Code: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"1"}},
	},
	BadGateway: {Kind: journal.Answer, Message: page},
	Page:       {Kind: journal.Answer, Message: page},
	HalfAnswer: {Kind: journal.Truncate},
	HeldAnswer: {Kind: journal.Hang, For: stall},
	TaskHangs:  {Kind: journal.HangTask, For: stall},
}

// gatewayCodes are those of BadGateway. An effect for each would triple its cases.
var gatewayCodes = []int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}

// changesVM matches the calls in whose place the world changes.
var changesVM = regexp.MustCompile(
	`^(POST /nodes/{host}/qemu|POST .*/(clone|config|status/(start|shutdown|reboot))|PUT .*/(config|resize)|DELETE .*/qemu/{vm})$`)

// lastingEffects are the effects that may befall all calls of a kind, until the run has ended. Those that the program
// waits for, for half an hour, are not among them: locks, and servers that ask to wait.
var lastingEffects = []Effect{
	Refused, Reset, Unanswered, TaskFailed, Unauthorized, Denied, BadGateway, Page, HalfAnswer,
}

// can lists, by face and pattern, what can happen to a kind of call in addition to what can happen to any; every row that
// matches counts.
var can = []struct {
	face    journal.Face
	pattern *regexp.Regexp
	effects []Effect
}{
	{journal.Proxmox, regexp.MustCompile(`^(POST|PUT|DELETE) `), []Effect{Unanswered}},
	{
		journal.Proxmox, regexp.MustCompile(`^`),
		[]Effect{Unauthorized, Denied, Throttled, BadGateway, Page, HalfAnswer, HeldAnswer},
	},
	{journal.Proxmox, changesVM, Events()},
	{
		journal.Kubernetes, regexp.MustCompile(`^`),
		[]Effect{Unauthorized, Throttled, BadGateway, Page, HalfAnswer, HeldAnswer},
	},
	{
		journal.Proxmox, regexp.MustCompile(
			`^(POST /nodes/{host}/qemu|POST .*/(clone|config|start|stop|shutdown|reboot|migrate|download-url)|PUT .*/resize|DELETE .*/(qemu/{vm}|content/{volume}))$`),
		[]Effect{TaskFailed, TaskFailedLate, TaskHangs},
	},
	{
		journal.Proxmox, regexp.MustCompile(`^(POST|PUT|DELETE) .*/qemu/{vm}(/(config|resize|status/\w+))?$`),
		[]Effect{Locked, Busy},
	},
	{journal.Proxmox, regexp.MustCompile(`^POST (/nodes/{host}/qemu|.*/clone)$`), []Effect{Taken}},
	{
		journal.Talos,
		regexp.MustCompile(
			`/(ApplyConfiguration|Bootstrap|Reboot|Reset|Shutdown|Upgrade|EtcdLeaveCluster|EtcdForfeitLeadership|EtcdRemoveMemberByID)$`),
		[]Effect{Unanswered},
	},
	{journal.Kubernetes, regexp.MustCompile(`^(POST|PUT|PATCH|DELETE) `), []Effect{Unanswered}},
	{journal.Factory, regexp.MustCompile(`^POST `), []Effect{Unanswered}},
	{journal.Factory, regexp.MustCompile(`^GET /image/`), []Effect{Truncated, Replaced}},
}

// Effects are what can happen to a call of this kind.
func (c Call) Effects() []Effect {
	effects := []Effect{Refused, Reset}

	// The lab's SSH servers do not stall; the library that the program uses has a bound of its own.
	if c.Face != journal.SSH {
		effects = append(effects, TimedOut)
	}

	for _, row := range can {
		if row.face == c.Face && row.pattern.MatchString(c.Pattern) {
			effects = append(effects, row.effects...)
		}
	}

	return effects
}

// fault brings the effect about, after skip calls of the kind have passed.
func (c Case) fault(skip int) journal.Fault {
	f, ok := plants[c.Effect]
	if !ok {
		f.Kind = journal.Interfere // an event
	}

	if c.Effect == BadGateway {
		f.Code = gatewayCodes[shard(c, len(gatewayCodes))]
	}

	f.Face, f.Call, f.Skip = c.Call.Face, c.Call.expression(), skip

	return f
}
