package pve

import (
	"strconv"

	"talos-proxmox/tests/lab/world"
)

const (
	clusterFirewall = "/cluster/firewall"
	vmFirewall      = vmPath + "/firewall"

	ruleParams = " pos:int digest macro iface source dest proto enable:int log sport dport comment icmp-type"
)

func firewallRoutes() []route {
	see, change := need("/", "Sys.Audit"), need("/", "Sys.Modify")
	seeVM, changeVM := need("/vms/{vmid}", "VM.Audit"), need("/vms/{vmid}", "VM.Config.Network")
	groups := clusterFirewall + "/groups"

	all := []route{
		{method: "GET", path: clusterFirewall + "/macros", handle: firewallMacros},
		{method: "GET", path: clusterFirewall + "/options", needs: see, handle: firewallOptions},
		{
			method: "PUT", path: clusterFirewall + "/options", needs: change, handle: setFirewallOptions,
			params: parameters("delete digest enable:int ebtables:bool policy_in policy_out policy_forward log_ratelimit"),
		},
		{method: "GET", path: groups, handle: securityGroups},
		{
			method: "POST", path: groups, needs: change, params: parameters("group! comment rename digest"),
			handle: createSecurityGroup,
		},
		{method: "DELETE", path: groups + "/{group}", needs: change, handle: deleteSecurityGroup},
		{method: "GET", path: vmFirewall + "/options", needs: seeVM, handle: firewallOptions},
		{
			method: "PUT", path: vmFirewall + "/options", needs: changeVM, handle: setFirewallOptions,
			params: parameters(
				"delete digest enable:bool macfilter:bool dhcp:bool ndp:bool radv:bool ipfilter:bool policy_in policy_out " +
					"log_level_in log_level_out"),
		},
	}

	all = append(all, ruleRoutes(clusterFirewall+"/rules", see, change)...)
	all = append(all, ruleRoutes(groups+"/{group}", see, change)...)

	return append(all, ruleRoutes(vmFirewall+"/rules", seeVM, changeVM)...)
}

// ruleRoutes are the calls about the rules of one scope, which are the same everywhere.
func ruleRoutes(path string, see, change privilege) []route {
	return []route{
		{method: "GET", path: path, needs: see, handle: firewallRules},
		{
			method: "POST", path: path, needs: change, params: parameters("type! action!" + ruleParams),
			handle: addFirewallRule,
		},
		{method: "GET", path: path + "/{pos}", needs: see, handle: firewallRule},
		{
			method: "PUT", path: path + "/{pos}", needs: change,
			params: parameters("moveto:int delete type action" + ruleParams), handle: updateFirewallRule,
		},
		{method: "DELETE", path: path + "/{pos}", needs: change, params: parameters("digest"), handle: deleteFirewallRule},
	}
}

// scope is whose rules a call is about.
func (r *request) scope() (world.FirewallScope, error) {
	at := world.FirewallScope{Group: r.vars["group"]}

	if r.vars["vmid"] == "" {
		return at, nil
	}

	var err error
	at.VMID, err = r.vmid()

	return at, err
}

// position is the rule that a call is about.
func (r *request) position() (int, error) {
	pos, err := strconv.Atoi(r.vars["pos"])
	if err != nil {
		return 0, world.Invalid("pos", "type check ('integer') failed - got '%s'", r.vars["pos"])
	}

	if pos < 0 {
		return 0, world.Invalid("pos", "value must have a minimum value of 0")
	}

	return pos, nil
}

// rule takes the properties of a rule out of the parameters.
func (r *request) rule() world.FirewallRule {
	rule := world.FirewallRule{}

	for name := range r.values.Values {
		switch name {
		case "pos", "digest", "moveto", "delete":
		default:
			rule[name] = r.values.Get(name)
		}
	}

	return rule
}

func ruleEntry(rule world.FirewallRule, pos any, digest string) map[string]any {
	out := map[string]any{"pos": pos, "digest": digest}

	for name, value := range rule {
		out[name] = value

		if name == "enable" || name == "ipversion" {
			out[name], _ = strconv.Atoi(value)
		}
	}

	return out
}

func firewallRules(r *request) (any, error) {
	at, err := r.scope()
	if err != nil {
		return nil, err
	}

	rules, digest, err := r.world.FirewallRules(at)
	if err != nil {
		return nil, err
	}

	out := []map[string]any{}
	for i, rule := range rules {
		out = append(out, ruleEntry(rule, i, digest))
	}

	return out, nil
}

func firewallRule(r *request) (any, error) {
	at, err := r.scope()
	if err != nil {
		return nil, err
	}

	pos, err := r.position()
	if err != nil {
		return nil, err
	}

	rules, digest, err := r.world.FirewallRules(at)
	if err != nil {
		return nil, err
	}

	if pos >= len(rules) {
		return nil, &world.Error{Code: 500, Reason: "no rule at position " + strconv.Itoa(pos)}
	}

	// The position comes back as it was sent, which is as a text.
	return ruleEntry(rules[pos], strconv.Itoa(pos), digest), nil
}

func addFirewallRule(r *request) (any, error) {
	at, err := r.scope()
	if err != nil {
		return nil, err
	}

	return nil, r.world.AddFirewallRule(at, r.rule())
}

func updateFirewallRule(r *request) (any, error) {
	at, err := r.scope()
	if err != nil {
		return nil, err
	}

	pos, err := r.position()
	if err != nil {
		return nil, err
	}

	return nil, r.world.UpdateFirewallRule(at, pos, world.FirewallRuleUpdate{
		Set: r.rule(), MoveTo: r.values.optionalNumber("moveto"), Delete: r.values.list("delete"),
		Digest: r.values.Get("digest"),
	})
}

func deleteFirewallRule(r *request) (any, error) {
	at, err := r.scope()
	if err != nil {
		return nil, err
	}

	pos, err := r.position()
	if err != nil {
		return nil, err
	}

	return nil, r.world.DeleteFirewallRule(at, pos, r.values.Get("digest"))
}

func firewallOptions(r *request) (any, error) {
	at, err := r.scope()
	if err != nil {
		return nil, err
	}

	options, digest := r.world.FirewallOptions(at)
	out := map[string]any{"digest": digest}

	for name, value := range options {
		out[name] = value

		if n, err := strconv.Atoi(value); err == nil {
			out[name] = n
		}
	}

	return out, nil
}

func setFirewallOptions(r *request) (any, error) {
	at, err := r.scope()
	if err != nil {
		return nil, err
	}

	set := map[string]string{}

	for name := range r.values.Values {
		switch name {
		case "delete", "digest":
		default:
			set[name] = r.values.plain(name)
		}
	}

	return nil, r.world.SetFirewallOptions(at, set, r.values.list("delete"), r.values.Get("digest"))
}

func firewallMacros(*request) (any, error) {
	out := []map[string]any{}
	for _, name := range world.FirewallMacros() {
		out = append(out, map[string]any{"macro": name, "descr": name})
	}

	return out, nil
}

func securityGroups(r *request) (any, error) {
	groups, digest := r.world.SecurityGroups()
	out := []map[string]any{}

	for _, g := range groups {
		entry := map[string]any{"group": g.Name, "digest": digest}
		optional(entry, "comment", g.Comment)
		out = append(out, entry)
	}

	return out, nil
}

// createSecurityGroup also renames groups.
func createSecurityGroup(r *request) (any, error) {
	name := r.values.Get("group")

	if old := r.values.Get("rename"); old != "" {
		return nil, r.world.RenameSecurityGroup(old, name, r.values.text("comment"), r.values.Get("digest"))
	}

	return nil, r.world.CreateSecurityGroup(name, r.values.Get("comment"))
}

func deleteSecurityGroup(r *request) (any, error) {
	return nil, r.world.DeleteSecurityGroup(r.vars["group"])
}
