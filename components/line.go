package components

import "github.com/pulumi/pulumi/sdk/v3/go/pulumi"

// line is in which order workers are made anew: so many at a time. It is made of dependencies, for who waits in a hook may wait
// for steps that the engine has not begun yet, and will not begin while all it does at a time is wait.
type line struct {
	places int
	// whole are the last resources of those that have been registered.
	whole []pulumi.Resource
}

func newLine(places int) *line { return &line{places: max(places, 1)} }

// before is what the next must wait for.
func (l *line) before() []pulumi.Resource {
	if l == nil || len(l.whole) < l.places {
		return nil
	}

	return []pulumi.Resource{l.whole[len(l.whole)-l.places]}
}

// enter notes the last resource of one.
func (l *line) enter(last pulumi.Resource) {
	if l != nil {
		l.whole = append(l.whole, last)
	}
}
