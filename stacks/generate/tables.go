package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"talos-proxmox/components/spec"
	"talos-proxmox/policy/rules"
	"talos-proxmox/stacks/migrate"
)

// policyTable lists the rules of the policy pack.
func policyTable() (string, error) {
	all, err := rules.All(rules.Facts{})
	if err != nil {
		return "", err
	}

	var b strings.Builder

	b.WriteString("\n| Rule | Production | Lab | What must hold | Settings other than `except` | What to do " +
		"|\n|---|---|---|---|---|---|\n")

	for _, r := range all {
		of := ""
		if r.Stack != nil {
			of = " (stack)"
		}

		shown, err := settings(r)
		if err != nil {
			return "", err
		}

		fmt.Fprintf(&b, "| `%s`%s | %s | %s | %s | %s | %s |\n", r.Name, of, level(r, spec.EnvironmentProduction),
			level(r, spec.EnvironmentLab), r.Must, shown, r.Remedy)
	}

	b.WriteString("\n")

	return b.String(), nil
}

func level(r rules.Rule, e spec.Environment) string {
	if r.Mandatory(e) {
		return "mandatory"
	}

	return "advisory"
}

// settings are those of a rule other than except, each with its default.
func settings(r rules.Rule) (string, error) {
	var all []string

	for _, name := range slices.Sorted(maps.Keys(r.Settings)) {
		if name == "except" {
			continue
		}

		text := "`" + name + "`"

		if value, ok := r.Settings[name]["default"]; ok {
			shown, err := json.Marshal(value)
			if err != nil {
				return "", err
			}

			text += " (`" + string(shown) + "`)"
		}

		all = append(all, fmt.Sprint(text, ": ", r.Settings[name]["description"]))
	}

	return strings.Join(all, "<br>"), nil
}

// variableTable lists the Terraform variables that have a key.
func variableTable() string {
	var b strings.Builder

	b.WriteString("| Variable | Becomes |\n|---|---|\n")

	for _, v := range migrate.Variables() {
		becomes := v.Becomes
		if v.Secret {
			becomes += ", by `pulumi config set --secret`"
		}

		fmt.Fprintf(&b, "| `%s` | %s |\n", v.Name, becomes)
	}

	return b.String()
}
