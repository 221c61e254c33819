package proxmoxvm

// State is what Proxmox VE says of the VM of a node that has one.
type State struct {
	// Running: the provider, which looks while a VM restarts, may have noted that it is off, and would start what runs.
	Running bool
	// Disks are those that the VM has, by their place in the plan. The program makes them larger, not the provider,
	// whose state may be that of before.
	Disks []int
	// Mark is another one for each thing that is left to be done on the VM and that the provider does not do; 0: nothing
	// is.
	Mark int
}
