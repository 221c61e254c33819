package plan

import "slices"

// Replaces says that the VM of a node, by the node's name, is to be recreated (lifecycle.replace).
func (p *Plan) Replaces(name string) bool { return slices.Contains(p.Replace, name) }

// DeclaredDead says that a node is dead or broken and may leave (lifecycle.forceRemove).
func (p *Plan) DeclaredDead(name string) bool { return slices.Contains(p.ForceRemove, name) }
