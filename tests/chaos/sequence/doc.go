// Package sequence changes a cluster that runs, many times over, and breaks things meanwhile. A seed draws a sequence:
// a small cluster, the changes of its configuration one after the other, and what goes wrong before and during each. A
// [Model] that knows nothing of the program says what each change must do to each node, or that it must be refused; the
// preview's table and the lab's own records are compared with it.
package sequence
