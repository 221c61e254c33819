// Package faults breaks things in the middle of a stack's life, and looks whether everything is as it would be without.
//
// The life of a small stack has four stages: it is created, scaled up, updated and destroyed. A [Harness] is such a
// stack with its lab; it goes through an undisturbed life first, notes every kind of call that is made in each stage,
// and keeps what the world looks like after it. A [Case] is one call that fails in one way: the first or the last of
// its kind in a stage. The stage is run with it, and what is left to do is done as the documentation tells an operator;
// then the world must be that of the undisturbed life. A [Kill] ends the pulumi CLI in the middle of a stage instead.
package faults
