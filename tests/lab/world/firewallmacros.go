package world

import "strings"

// macroRule is one of the rules that a macro stands for; empty parts are those of the rule that uses it.
type macroRule struct{ proto, sport, dport string }

// firewallMacros are the macros of pve-firewall 5, as "name protocol/port ..."; a source port comes with an "@".
var firewallMacros = macros(`
Amanda udp/10080 tcp/10080; Auth tcp/113; BGP tcp/179; BitTorrent tcp/6881:6889 udp/6881; BitTorrent32 tcp/6881:6999 udp/6881;
CVS tcp/2401; Ceph tcp/6789 tcp/3300 tcp/6800:7300; Citrix tcp/1494 udp/1604 tcp/2598; DAAP tcp/3689 udp/3689; DCC tcp/6277;
DHCPfwd udp/67:68@67:68; DHCPv6 udp/546:547@546:547; DNS udp/53 tcp/53; Distcc tcp/3632; FTP tcp/21; Finger tcp/79;
GNUnet tcp/2086 udp/2086 tcp/1080 udp/1080; GRE 47; Git tcp/9418; HKP tcp/11371; HTTP tcp/80; HTTPS tcp/443; ICPV2 udp/3130; ICQ tcp/5190;
IMAP tcp/143; IMAPS tcp/993; IPIP 94; IPsec udp/500@500 50; IPsecah udp/500@500 51; IPsecnat udp/500 udp/4500 50; IRC tcp/6667;
Jetdirect tcp/9100; L2TP udp/1701; LDAP tcp/389; LDAPS tcp/636; MDNS udp/5353; MSNP tcp/1863; MSSQL tcp/1433; Mail tcp/25 tcp/465 tcp/587;
Munin tcp/4949; MySQL tcp/3306; NNTP tcp/119; NNTPS tcp/563; NTP udp/123;
NeighborDiscovery icmpv6/router-solicitation icmpv6/router-advertisement icmpv6/neighbor-solicitation icmpv6/neighbor-advertisement;
OSPF 89; OpenVPN udp/1194; PCA udp/5632 tcp/5631; PMG tcp/8006; POP3 tcp/110; POP3S tcp/995; PPtP 47 tcp/1723; Ping icmp/echo-request;
PostgreSQL tcp/5432; Printer tcp/515; RDP tcp/3389; RIP udp/520; RNDC tcp/953; Razor tcp/2703; Rdate tcp/37; Rsync tcp/873; SANE tcp/6566;
SMB udp/135,445 udp/137:139 udp/1024:65535@137 tcp/135,139,445; SMBswat tcp/901; SMTP tcp/25; SMTPS tcp/465; SNMP udp/161:162 tcp/161;
SPAMD tcp/783; SPICEproxy tcp/3128; SSH tcp/22; SVN tcp/3690; SixXS tcp/3874 udp/3740 41 udp/5072,8374; Squid tcp/3128; Submission tcp/587;
Syslog udp/514 tcp/514; TFTP udp/69; Telnet tcp/23; Telnets tcp/992; Time tcp/37; Trcrt udp/33434:33524 icmp/echo-request; VNC tcp/5900:5999;
VNCL tcp/5500; Web tcp/80 tcp/443; Webcache tcp/8080; Webmin tcp/10000; Whois tcp/43`)

func macros(text string) map[string][]macroRule {
	all := map[string][]macroRule{}

	for entry := range strings.SplitSeq(text, ";") {
		words := strings.Fields(entry)

		for _, word := range words[1:] {
			proto, ports, _ := strings.Cut(word, "/")
			dport, sport, _ := strings.Cut(ports, "@")
			all[words[0]] = append(all[words[0]], macroRule{proto, sport, dport})
		}
	}

	return all
}

// macroNamed finds a macro, however it is written.
func macroNamed(name string) (string, bool) {
	for _, known := range sortedKeys(firewallMacros) {
		if strings.EqualFold(known, name) {
			return known, true
		}
	}

	return "", false
}

// FirewallMacros are the names of all macros.
func FirewallMacros() []string { return sortedKeys(firewallMacros) }

// What a rule may name: protocols, those of them that have ports, services by name, and messages of ICMP.
var (
	protocols = strings.Fields("ip icmp igmp ggp ipencap st tcp egp igp pup udp hmp xns-idp rdp iso-tp4 dccp xtp " +
		"ddp idpr-cmtp ipv6 ipv6-route ipv6-frag idrp rsvp gre esp ah skip ipv6-icmp icmpv6 ipv6-nonxt ipv6-opts rspf vmtp " +
		"eigrp ospf ax.25 ipip etherip encap pim ipcomp vrrp l2tp isis sctp fc mobility-header udplite mpls-in-ip manet " +
		"hip shim6 wesp rohc")
	withPorts = strings.Fields("udp 17 udplite 136 tcp 6 dccp 33 sctp 132")
	services  = strings.Fields("ftp ssh telnet smtp domain bootps bootpc tftp http kerberos pop3 sunrpc auth nntp " +
		"ntp imap2 snmp snmp-trap bgp ldap https submission syslog ldaps iscsi-target mysql postgresql vnc nfs")
	icmpMessages = strings.Fields("any echo-reply destination-unreachable network-unreachable host-unreachable " +
		"protocol-unreachable port-unreachable fragmentation-needed source-route-failed network-unknown host-unknown " +
		"network-prohibited host-prohibited TOS-network-unreachable TOS-host-unreachable communication-prohibited " +
		"host-precedence-violation precedence-cutoff source-quench redirect network-redirect host-redirect " +
		"TOS-network-redirect TOS-host-redirect echo-request router-advertisement router-solicitation time-exceeded " +
		"ttl-zero-during-transit ttl-zero-during-reassembly parameter-problem ip-header-bad required-option-missing " +
		"timestamp-request timestamp-reply address-mask-request address-mask-reply")
	icmp6Messages = strings.Fields("destination-unreachable no-route communication-prohibited beyond-scope " +
		"address-unreachable port-unreachable failed-policy reject-route packet-too-big time-exceeded " +
		"ttl-zero-during-transit ttl-zero-during-reassembly parameter-problem bad-header unknown-header-type " +
		"unknown-option echo-request echo-reply router-solicitation router-advertisement neighbor-solicitation " +
		"neighbour-solicitation neighbor-advertisement neighbour-advertisement redirect")
	logLevels = oneOf("emerg", "alert", "crit", "err", "warning", "notice", "info", "debug", "nolog")
)
