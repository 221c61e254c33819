package talos

import (
	"talos-proxmox/tests/lab/factory"
	"talos-proxmox/tests/lab/machine"
)

// Schematics looks schematics up in an Image Factory.
func Schematics(f *factory.Factory) func(id string) (Schematic, bool) {
	return func(id string) (Schematic, bool) {
		known, ok := f.Schematic(id)
		if !ok {
			return Schematic{}, false
		}

		c := known.Customization
		s := Schematic{
			ID: id, Extensions: c.SystemExtensions.OfficialExtensions, KernelArgs: c.ExtraKernelArgs,
			META: map[uint8]string{},
		}

		for _, v := range c.Meta {
			s.META[v.Key] = v.Value
		}

		return s.clone(), true
	}
}

// recognise tells which image a file holds, nil when it holds none that boots: anything else, or an image that is still
// compressed.
func (f *Firmware) recognise(file *machine.File) machine.Content {
	a, ok := factory.Identify(file.Head)
	if !ok || a.Compression != "" {
		return nil
	}

	s, ok := f.opts.Schematic(a.Schematic)
	if !ok && a.Schematic != factory.Plain {
		return nil
	}

	return &Image{Schematic: s, Version: a.Version, Platform: a.Platform, ISO: a.ISO, SecureBoot: a.SecureBoot}
}
