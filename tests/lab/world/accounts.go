package world

import (
	"maps"
	"slices"
	"strings"
)

// What an administrator makes: users, their tokens, roles, and what a role gives to whom (pve-access-control:
// API2/User.pm, API2/Role.pm, API2/ACL.pm).

// User is what is known of a user.
type User struct {
	ID, Comment, Email  string
	FirstName, LastName string
	// Keys are for a second factor.
	Keys     string
	Disabled bool
	Expire   int
}

// Token is an API token of a user.
type Token struct {
	// ID is that of its user, "!", and its name.
	ID, Comment string
	// Separated tokens have what is granted to them, as far as their users have it; others have what their users have.
	Separated bool
	Expire    int
}

// Grant is a role on a path, for a user or a token.
type Grant struct{ Path, Role, ID string }

// Role returns the privileges of a role.
func (w *World) Role(id string) ([]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if list, there := w.access.role(id); there {
		return list, nil
	}

	return nil, failf("role '%s' does not exist", id)
}

// Roles are all of them, with their privileges.
func (w *World) Roles() map[string][]string {
	w.mu.Lock()
	defer w.mu.Unlock()

	all := maps.Clone(w.access.predefined)
	maps.Copy(all, w.access.roles)

	return all
}

// Predefined says whether a role is one that every Proxmox VE has.
func (w *World) Predefined(role string) bool { return w.access.predefined[role] != nil }

func (a *access) role(id string) ([]string, bool) {
	if list, there := a.predefined[id]; there {
		return list, true
	}

	list, there := a.roles[id]

	return list, there
}

// known refuses privileges that the version does not have.
func (w *World) known(privileges []string) error {
	for _, p := range privileges {
		if !slices.Contains(w.version.Privileges(), p) {
			return Invalid("privs", "invalid format - invalid privilege '%s'\n", p)
		}
	}

	return nil
}

// AddRole makes a role.
func (w *World) AddRole(id string, privileges []string) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	if err := w.known(privileges); err != nil {
		return err
	}

	if _, there := w.access.role(id); there {
		return failf("create role failed: role '%s' already exists", id)
	}

	w.access.roles[id] = unique(privileges)

	return nil
}

// UpdateRole gives a role other privileges, or more.
func (w *World) UpdateRole(id string, privileges []string, more bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	if err := w.known(privileges); err != nil {
		return err
	}

	if w.access.predefined[id] != nil {
		return failf("auto-generated role '%s' cannot be modified", id)
	}

	now, there := w.access.roles[id]

	switch {
	case !there:
		return failf("update role failed: role '%s' does not exist", id)
	case more:
		privileges = slices.Concat(now, privileges)
	}

	w.access.roles[id] = unique(privileges)

	return nil
}

// DeleteRole removes a role from where it was given.
func (w *World) DeleteRole(id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	if w.access.predefined[id] != nil {
		return failf("auto-generated role '%s' cannot be deleted", id)
	}

	if _, there := w.access.roles[id]; !there {
		return failf("delete role failed: role '%s' does not exist", id)
	}

	delete(w.access.roles, id)
	w.access.given = slices.DeleteFunc(w.access.given, func(g Grant) bool { return g.Role == id })

	return nil
}

// AddUser makes a user, who cannot log in: the lab sets no passwords.
func (w *World) AddUser(u User) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	if slices.Contains(w.access.users(), u.ID) {
		return failf("create user failed: user '%s' already exists", u.ID)
	}

	w.access.made[u.ID] = u

	return nil
}

// User returns what is known of a user.
func (w *World) User(id string) (User, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	if u, there := w.access.made[id]; there {
		return u, nil
	}

	return User{ID: id}, w.access.exists(id)
}

// SetUser changes what is known of a user.
func (w *World) SetUser(u User) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	err := w.access.exists(u.ID)
	if err == nil {
		w.access.made[u.ID] = u
	}

	return err
}

func (a *access) exists(user string) error {
	if slices.Contains(a.users(), user) {
		return nil
	}

	return failf("no such user ('%s')", user)
}

// DeleteUser removes a user with its tokens, and all that was given to them.
func (w *World) DeleteUser(id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	if err := w.access.exists(id); err != nil {
		return err
	}

	delete(w.access.made, id)
	delete(w.access.passwords, id)

	for token := range w.access.tokens {
		if strings.HasPrefix(token, id+"!") {
			w.access.dropToken(token)
		}
	}

	w.access.forget(id)

	return nil
}

func (a *access) dropToken(id string) {
	delete(a.tokens, id)
	delete(a.attributes, id)
	a.forget(id)
}

// forget takes all from a user or a token.
func (a *access) forget(id string) {
	delete(a.grants, id)
	a.given = slices.DeleteFunc(a.given, func(g Grant) bool { return g.ID == id })
}

// Tokens are those of a user.
func (w *World) Tokens(user string) ([]Token, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	var list []Token

	for _, id := range sortedKeys(w.access.tokens) {
		if strings.HasPrefix(id, user+"!") {
			list = append(list, w.access.token(id))
		}
	}

	return list, w.access.exists(user)
}

// token has privileges of its own where nothing else is said.
func (a *access) token(id string) Token {
	if t, there := a.attributes[id]; there {
		return t
	}

	return Token{ID: id, Separated: true}
}

// NewToken makes a token of a user, and returns its secret.
func (w *World) NewToken(t Token) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	user, _, _ := strings.Cut(t.ID, "!")
	if err := w.access.exists(user); err != nil {
		return "", err
	}

	if _, there := w.access.tokens[t.ID]; there {
		return "", Invalid("tokenid", "Token already exists.")
	}

	secret := newUUID()
	w.access.tokens[t.ID], w.access.attributes[t.ID] = secret, t

	return secret, nil
}

// Token returns a token; one that is not there is an error.
func (w *World) Token(id string) (Token, error) {
	w.mu.Lock()
	defer w.mu.Unlock()

	return w.access.token(id), w.access.hasToken(id)
}

func (a *access) hasToken(id string) error {
	if _, there := a.tokens[id]; there {
		return nil
	}

	user, name, _ := strings.Cut(id, "!")

	return failf("no such token '%s' for user '%s'", name, user)
}

// SetToken changes a token. Its secret stays.
func (w *World) SetToken(t Token) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	err := w.access.hasToken(t.ID)
	if err == nil {
		w.access.attributes[t.ID] = t
	}

	return err
}

// DeleteToken removes a token, and all that was given to it.
func (w *World) DeleteToken(id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	err := w.access.hasToken(id)
	if err == nil {
		w.access.dropToken(id)
	}

	return err
}

// Grants are all roles that were given.
func (w *World) Grants() []Grant {
	w.mu.Lock()
	defer w.mu.Unlock()

	return slices.Clone(w.access.given)
}

// Give gives a role on a path and all below it, or takes it away.
func (w *World) Give(g Grant, take bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()

	if _, there := w.access.role(g.Role); !there {
		return failf("ACL update failed: role '%s' does not exist", g.Role)
	}

	user, token, isToken := strings.Cut(g.ID, "!")

	switch {
	case !slices.Contains(w.access.users(), user):
		return failf("ACL update failed: user '%s' does not exist", user)
	case isToken && w.access.hasToken(g.ID) != nil:
		return failf("ACL update failed: no such token '%s' for user '%s'", token, user)
	}

	w.access.given = slices.DeleteFunc(w.access.given, func(other Grant) bool { return other == g })
	if !take {
		w.access.given = append(w.access.given, g)
	}

	return nil
}

// unique are texts in order, each once.
func unique(texts []string) []string {
	texts = slices.Clone(texts)
	slices.Sort(texts)

	return slices.Compact(texts)
}
