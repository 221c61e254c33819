package vmidentity

// ReplaceMark is the property whose change replaces a VM: a value of the state that means nothing to the machine, by
// how long a clone may take. A replacement trigger of the engine would not do: it counts only where the state has one
// already.
const ReplaceMark = "timeoutClone"

// CloneTimeout is the provider's own, in seconds. ReplacedTimeout marks a VM that was replaced.
const (
	CloneTimeout    = 1800
	ReplacedTimeout = CloneTimeout + 1
)
