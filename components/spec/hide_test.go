package spec

import "testing"

func TestHideSecrets(t *testing.T) {
	for text, want := range map[string]string{
		"console=ttyS0 net.ifnames=0":                                           "console=ttyS0 net.ifnames=0",
		"siderolink.api=https://omni.lan:8090?jointoken=abc-1&grpc_tunnel=true": "siderolink.api=https://omni.lan:8090?***",
		"siderolink.api=https://omni.lan:8090?jointoken=***&grpc_tunnel=true":   "siderolink.api=https://omni.lan:8090?***",
		"talos.config=http://lan/c?t=abc quiet=1 b=c?d":                         "talos.config=http://lan/c?*** quiet=1 b=c?d",
		"TS_AUTHKEY=tskey-1 x.password=a":                                       "TS_AUTHKEY=*** x.password=***",
		"talos.logging.kernel=tcp://robot:pw@logs.lan:514":                      "talos.logging.kernel=tcp://***@logs.lan:514",
		`x.password="a b" y.psk=a,b;c talos.config.inline=KLUv/QBY`:             "x.password=*** y.psk=*** talos.config.inline=***",
		"talos.config.early=KLUv/QBY quiet":                                     "talos.config.early=*** quiet",
		"a.auth-key=1 b.api-key=2 c.private-key=4":                              "a.auth-key=*** b.api-key=*** c.private-key=***",
		"--vpn-auth=name=tailscale,joinKey=tskey-1":                             "--vpn-auth=name=tailscale,joinKey=***",
		"--etcd-s3-secret-key=abc":                                              "--etcd-s3-secret-key=***",
		"    - 'jointoken=abc'\n":                                               "    - 'jointoken=***'\n",
	} {
		if got := HideSecrets(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}
