package lab

import (
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"time"

	"talos-proxmox/tests/lab/factory"
	"talos-proxmox/tests/lab/machine"
)

// FactoryURL is the URL of the Image Factory.
func (l *Lab) FactoryURL() string { return l.web.url }

// Factory is the Image Factory, which takes schematics and mirrors images under other paths.
func (l *Lab) Factory() *factory.Factory { return l.factory }

// web is a server in addition to that of Proxmox VE.
type web struct {
	url    string
	server *http.Server
	done   chan struct{}
}

// serveFactory answers next to Proxmox VE, on a port that is free.
func (l *Lab) serveFactory(c Config) (*web, error) {
	o := c.Factory
	o.Journal, o.Touch = l.journal, l.timeline.Touch
	l.factory = factory.New(o)

	for _, s := range c.Schematics {
		l.factory.Add(s)
	}

	listener, err := net.Listen("tcp4", net.JoinHostPort(l.network.server().String(), "0"))
	if err != nil {
		return nil, err
	}

	w := &web{
		url: "http://" + listener.Addr().String(), done: make(chan struct{}),
		server: &http.Server{Handler: l.factory, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)},
	}

	go func() {
		defer close(w.done)
		_ = w.server.Serve(listener)
	}()

	return w, nil
}

func (w *web) close() error {
	err := w.server.Close()
	<-w.done

	return err
}

// addFile puts a file where the operator has it.
func (l *Lab) addFile(hosts []Host, f File) error {
	content := &machine.File{Head: l.factory.Head(f.Asset)}

	for _, h := range hosts {
		i := slices.IndexFunc(h.Storages, func(s Storage) bool { return s.Name == f.Storage })
		if len(f.Hosts) == 0 && i < 0 || len(f.Hosts) > 0 && !slices.Contains(f.Hosts, h.Name) {
			continue
		}

		if err := l.world.AddFile(h.Name, f.Storage, "iso", f.Name, l.factory.Size(f.Asset), content); err != nil {
			return err
		}
	}

	return nil
}
