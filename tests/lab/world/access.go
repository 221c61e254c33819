package world

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Credentials are an API token and a user's password.
type Credentials struct {
	TokenID, TokenSecret string
	Username, Password   string
}

// NewCredentials makes credentials with random secrets.
func NewCredentials() Credentials {
	return Credentials{
		TokenID:     "pulumi@pve!talos",
		TokenSecret: newUUID(),
		Username:    "root@pam",
		Password:    randomHex(12),
	}
}

// superuser may do everything, some of which no privilege gives: Proxmox VE means the user, never a token of that user.
const superuser = "root@pam"

// access is who there is and what they may do. A token is a user of its own here, as it is in Proxmox VE when its
// privileges are separated.
type access struct {
	tokens    map[string]string // id: secret
	passwords map[string]string
	tickets   map[string]Ticket
	grants    map[string]map[string][]string // id: path: privileges
	// made are the users that an administrator made, or said something of; attributes likewise of tokens.
	made       map[string]User
	attributes map[string]Token
	// predefined are the roles that there always are, roles those that were made, given what they were given to.
	predefined, roles map[string][]string
	given             []Grant
}

// Ticket is what a login returns.
type Ticket struct {
	Username string
	Ticket   string
	CSRF     string
}

func (a *access) init(c Credentials, all []string) {
	a.tokens = map[string]string{}
	a.passwords = map[string]string{}
	a.tickets = map[string]Ticket{}
	a.grants = map[string]map[string][]string{}
	a.made = map[string]User{}
	a.attributes = map[string]Token{}
	a.roles = map[string][]string{}

	if c.TokenID != "" {
		a.tokens[c.TokenID] = c.TokenSecret
		a.grants[c.TokenID] = map[string][]string{"/": all}
	}

	if c.Username != "" {
		a.passwords[c.Username] = c.Password
		a.grants[c.Username] = map[string][]string{"/": all}
	}
}

// users are all there are: those with a password and those with a token, and root@pam, who is always there.
func (a *access) users() []string {
	all := map[string]bool{superuser: true}

	for user := range a.passwords {
		all[user] = true
	}

	for user := range a.made {
		all[user] = true
	}

	for id := range a.tokens {
		user, _, _ := strings.Cut(id, "!")
		all[user] = true
	}

	return sortedKeys(all)
}

// Users are all users that a caller may see: all with a privilege on users' groups, and always its own.
func (w *World) Users(c Caller) []string {
	w.mu.Lock()
	defer w.mu.Unlock()

	all := w.access.users()
	if w.needAny(c, "/access/groups", "User.Modify", "Sys.Audit") == nil {
		return all
	}

	return slices.DeleteFunc(all, func(user string) bool { return user != c.ID })
}

// AddToken makes an API token that may do nothing yet.
func (w *World) AddToken(id, secret string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.access.tokens[id] = secret
	w.access.grants[id] = map[string][]string{}
}

// Grant gives a user or token privileges on a path and everything below it, instead of what it had from paths above.
// Without privileges it takes everything away. Privileges that the version does not know are no privileges.
func (w *World) Grant(id, path string, privileges ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if w.access.grants[id] == nil {
		w.access.grants[id] = map[string][]string{}
	}

	known := w.version.Privileges()
	w.access.grants[id][path] = slices.DeleteFunc(slices.Clone(privileges), func(p string) bool {
		return !slices.Contains(known, p)
	})
}

// VerifyToken accepts a token or says what is wrong with it.
func (w *World) VerifyToken(id, secret string) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	user, name, isToken := strings.Cut(id, "!")
	known, there := w.access.tokens[id]
	account, now := w.access.made[user], int(time.Now().Unix())

	switch expiry := w.access.attributes[id].Expire; {
	case !isToken:
		return w.unauthorized("'%s' is not a valid token ID - not able to split into user and token parts", id)
	case !slices.Contains(w.access.users(), user):
		return w.unauthorized("no such user ('%s')", user)
	case account.Disabled:
		return w.unauthorized("user '%s' is disabled", user)
	case account.Expire > 0 && account.Expire < now:
		return w.unauthorized("user '%s' access expired", user)
	case !there:
		return w.unauthorized("no such token '%s' for user '%s'", name, user)
	case expiry > 0 && expiry < now:
		return w.unauthorized("token '%s' access expired", name)
	case known != secret:
		return w.unauthorized("invalid token value!")
	default:
		return nil
	}
}

// unauthorized refuses a token or a ticket. Version 9 keeps the reason to itself (pve-manager: HTTPServer.pm).
func (w *World) unauthorized(format string, args ...any) error {
	if w.version.Major() > 8 {
		return &Error{Code: 401, Reason: "Authentication failed!"}
	}

	return &Error{Code: 401, Reason: fmt.Sprintf(format, args...)}
}

// Login exchanges a password for a ticket.
func (w *World) Login(username, password string) (Ticket, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if known, ok := w.access.passwords[username]; !ok || known != password {
		return Ticket{}, &Error{Code: 401, Reason: "authentication failure"}
	}

	t := Ticket{
		Username: username, Ticket: "PVE:" + username + ":" + randomHex(24),
		CSRF: randomHex(4) + ":" + randomHex(16),
	}
	w.access.tickets[t.Ticket] = t

	return t, nil
}

// VerifyTicket accepts a ticket, for calls that change something only together with its CSRF prevention token, and
// returns whose it is.
func (w *World) VerifyTicket(ticket, csrf string, change bool) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	t, ok := w.access.tickets[ticket]
	if !ok {
		return "", w.unauthorized("permission denied - invalid PVE ticket")
	}

	if change && t.CSRF != csrf {
		return "", &Error{Code: 401, Reason: "Permission denied - invalid csrf token"}
	}

	return t.Username, nil
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b)

	return hex.EncodeToString(b)
}

func newUUID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80

	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
