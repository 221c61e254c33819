package pve

import (
	"cmp"
	"errors"
	"net/http"
	"strings"

	"talos-proxmox/tests/lab/world"
)

// accountRoutes are what an administrator makes: users, tokens, roles, and what they give to whom.
func accountRoutes() []route {
	const user, token, role = "/access/users/{userid}", "/access/users/{userid}/token/{tokenid}", "/access/roles/{role}"

	users, all := need("/access/groups", "User.Modify"), need("/access", "Sys.Modify")
	attributes := "comment email enable:bool expire:int firstname lastname keys"

	return []route{
		{
			method: "POST", path: "/access/users", params: parameters("userid! " + attributes),
			handle: createUser,
		},
		{method: "GET", path: user, handle: showUser},
		{method: "PUT", path: user, needs: users, params: parameters(attributes), handle: updateUser},
		{method: "DELETE", path: user, needs: users, handle: deleteUser},
		{method: "GET", path: user + "/token", handle: tokens},
		{method: "GET", path: token, handle: showToken},
		{method: "POST", path: token, params: parameters("comment expire:int privsep:bool"), handle: createToken},
		{method: "PUT", path: token, params: parameters("comment expire:int privsep:bool"), handle: updateToken},
		{method: "DELETE", path: token, handle: deleteToken},
		{
			method: "POST", path: "/access/roles", needs: all, params: parameters("roleid! privs"),
			handle: func(r *request) (any, error) {
				return nil, r.world.AddRole(r.values.Get("roleid"), r.values.list("privs"))
			},
		},
		{
			method: "PUT", path: role, needs: all, params: parameters("privs append:bool"),
			handle: func(r *request) (any, error) {
				return nil, r.world.UpdateRole(r.vars["role"], r.values.list("privs"), r.values.isSet("append"))
			},
		},
		{
			method: "DELETE", path: role, needs: all,
			handle: func(r *request) (any, error) { return nil, r.world.DeleteRole(r.vars["role"]) },
		},
		{method: "GET", path: "/access/acl", handle: grants},
		{
			method: "PUT", path: "/access/acl",
			params: parameters("path! roles! users tokens delete:bool propagate:bool"), handle: give,
		},
	}
}

func createUser(r *request) (any, error) {
	_, realm, _ := strings.Cut(r.values.Get("userid"), "@")
	if err := r.world.Require(r.caller, "/access/realm/"+realm, "Realm.AllocateUser"); err != nil {
		return nil, err
	}

	if err := r.world.Require(r.caller, "/access/groups", "User.Modify"); err != nil {
		return nil, err
	}

	return nil, r.world.AddUser(r.user(world.User{ID: r.values.Get("userid")}))
}

// user is a user with what the call says of it.
func (r *request) user(u world.User) world.User {
	for name, field := range map[string]*string{
		"comment": &u.Comment, "email": &u.Email, "firstname": &u.FirstName, "lastname": &u.LastName, "keys": &u.Keys,
	} {
		if text := r.values.text(name); text != nil {
			*field = *text
		}
	}

	if on := r.values.flag("enable"); on != nil {
		u.Disabled = !*on
	}

	if n := r.values.optionalNumber("expire"); n != nil {
		u.Expire = *n
	}

	return u
}

func showUser(r *request) (any, error) {
	if r.world.Require(r.caller, "/access/groups", "User.Modify", "Sys.Audit") != nil {
		return nil, errDenied
	}

	u, err := r.world.User(r.vars["userid"])
	if err != nil {
		return nil, err
	}

	list, err := r.world.Tokens(u.ID)
	if err != nil {
		return nil, err
	}

	entry := userEntry(u)
	entry["groups"], entry["tokens"] = []any{}, nil

	if len(list) > 0 {
		byName := map[string]any{}

		for _, t := range list {
			_, name, _ := strings.Cut(t.ID, "!")
			byName[name] = tokenEntry(t)
		}

		entry["tokens"] = byName
	}

	return entry, nil
}

func updateUser(r *request) (any, error) {
	u, err := r.world.User(r.vars["userid"])
	if err != nil {
		return nil, err
	}

	return nil, r.world.SetUser(r.user(u))
}

func deleteUser(r *request) (any, error) { return nil, r.world.DeleteUser(r.vars["userid"]) }

// errDenied is what Proxmox VE answers where one of several conditions would do.
var errDenied = &world.Error{Code: http.StatusForbidden, Reason: "Permission check failed"}

// ownsToken refuses callers who neither are the user whose token it is, nor may change users. A token is not its user.
func (r *request) ownsToken() error {
	_, err := r.world.User(r.vars["userid"])
	if err == nil && r.caller.ID == r.vars["userid"] {
		return nil
	}

	if err != nil || r.world.Require(r.caller, "/access/groups", "User.Modify") != nil {
		return errDenied
	}

	return nil
}

func (r *request) tokenID() string { return r.vars["userid"] + "!" + r.vars["tokenid"] }

func tokenEntry(t world.Token) map[string]any {
	entry := map[string]any{"expire": t.Expire, "privsep": bit(t.Separated)}
	optional(entry, "comment", t.Comment)

	return entry
}

func tokens(r *request) (any, error) {
	if err := r.ownsToken(); err != nil {
		return nil, err
	}

	list, err := r.world.Tokens(r.vars["userid"])
	if err != nil {
		return nil, err
	}

	out := []map[string]any{}

	for _, t := range list {
		entry := tokenEntry(t)
		_, entry["tokenid"], _ = strings.Cut(t.ID, "!")
		out = append(out, entry)
	}

	return out, nil
}

func showToken(r *request) (any, error) {
	if err := r.ownsToken(); err != nil {
		return nil, err
	}

	t, err := r.world.Token(r.tokenID())
	if err != nil {
		return nil, err
	}

	return tokenEntry(t), nil
}

// token is a token with what the call says of it.
func (r *request) token(t world.Token) world.Token {
	if on := r.values.flag("privsep"); on != nil {
		t.Separated = *on
	}

	if text := r.values.text("comment"); text != nil {
		t.Comment = *text
	}

	if n := r.values.optionalNumber("expire"); n != nil {
		t.Expire = *n
	}

	return t
}

func createToken(r *request) (any, error) {
	if err := r.ownsToken(); err != nil {
		return nil, err
	}

	t := r.token(world.Token{ID: r.tokenID(), Separated: true})

	secret, err := r.world.NewToken(t)
	if err != nil {
		return nil, err
	}

	// What was sent comes back as it was sent.
	info := map[string]any{"privsep": cmp.Or(r.values.Get("privsep"), "1")}
	optional(info, "comment", t.Comment)
	optional(info, "expire", r.values.Get("expire"))

	return map[string]any{"full-tokenid": t.ID, "value": secret, "info": info}, nil
}

func updateToken(r *request) (any, error) {
	if err := r.ownsToken(); err != nil {
		return nil, err
	}

	t, err := r.world.Token(r.tokenID())
	if err != nil {
		return nil, err
	}

	t = r.token(t)
	entry := tokenEntry(t)

	// What was sent comes back as it was sent.
	for _, name := range []string{"expire", "privsep"} {
		if text := r.values.text(name); text != nil {
			entry[name] = *text
		}
	}

	return entry, r.world.SetToken(t)
}

func deleteToken(r *request) (any, error) {
	if err := r.ownsToken(); err != nil {
		return nil, err
	}

	return nil, r.world.DeleteToken(r.tokenID())
}

func grants(r *request) (any, error) {
	out := []map[string]any{}

	for _, g := range r.world.Grants() {
		if r.world.Require(r.caller, g.Path, "Permissions.Modify") != nil {
			continue
		}

		kind := "user"
		if strings.Contains(g.ID, "!") {
			kind = "token"
		}

		out = append(out, map[string]any{"path": g.Path, "roleid": g.Role, "ugid": g.ID, "type": kind, "propagate": 1})
	}

	return out, nil
}

func give(r *request) (any, error) {
	path := r.values.Get("path")
	if err := r.world.Require(r.caller, path, "Permissions.Modify"); err != nil {
		return nil, err
	}

	if on := r.values.flag("propagate"); on != nil && !*on {
		return nil, unknownError{errors.New("a role that is not passed on")}
	}

	for _, id := range append(r.values.list("users"), r.values.list("tokens")...) {
		for _, role := range r.values.list("roles") {
			g := world.Grant{Path: path, Role: role, ID: id}
			if err := r.world.Give(g, r.values.isSet("delete")); err != nil {
				return nil, err
			}
		}
	}

	return nil, nil //nolint:nilnil // Proxmox VE answers null
}
