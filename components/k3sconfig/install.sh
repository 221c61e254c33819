#!/bin/sh
# Installs K3s with the installation script of the very version that /etc/default/k3s-install states, or
# /var/lib/k3s-install/wanted since, and (re)starts it. It may be run again whenever it failed. What cannot get better by
# trying again is written to /var/lib/k3s-install/fatal and ends it with status 78. The first argument is a directory to take
# for the root of the file system, for tests.
set -eu

root=${1:-}
state=$root/var/lib/k3s-install

# The guest agent writes there, and makes its files for everybody.
mkdir -p "$state"
chmod 700 "$state"

# It is there before it is written to: what watches it sees one change then.
[ -e "$state/wanted" ] || : >"$state/wanted"

. "$root/etc/default/k3s-install"
. "$state/wanted"

say() { echo "$(date -u +%FT%TZ) $*"; }

fatal() {
	say "fatal: $*"
	echo "$*" >"$state/fatal"
	exit 78
}

: >"$state/fatal"

if [ "$(cat "$state/done" 2>/dev/null)" = "$K3S_VERSION" ]; then
	say "K3s $K3S_VERSION is installed"
	exit 0
fi

# The system: what K3s is tried on, and what it needs.
os=$(. "$root/etc/os-release" && echo "$ID $VERSION_ID")
case $os in
"ubuntu 22.04" | "ubuntu 24.04") ;;
*) fatal "unsupported operating system $os: a node must be Ubuntu 22.04 or 24.04. Correct the template or the image" ;;
esac

[ "$(uname -m)" = x86_64 ] || fatal "unsupported architecture $(uname -m): a node must be x86_64"

free=$(df -Pk "$root/var" | awk 'NR == 2 { print $4 }')
[ -e "$state/done" ] || [ "$free" -ge 3145728 ] || fatal "too little room: $((free / 1024)) MiB are free in /var, K3s and its images need 3072. Raise diskGiB"

for module in overlay br_netfilter; do
	modprobe "$module" || fatal "the kernel has no module $module: K3s cannot run containers"
done

# The packages. cloud-init asks for them once, and goes on without those that it cannot get.
lists=
for package in $K3S_PACKAGES; do
	[ "$(dpkg-query --show --showformat '${db:Status-Status}' "$package" 2>/dev/null)" != installed ] || continue

	say "installing $package, which cloud-init did not"
	[ -n "$lists" ] || { apt-get update --error-on=any && lists=whole; } || lists=partial
	DEBIAN_FRONTEND=noninteractive apt-get --option DPkg::Lock::Timeout=300 --yes install "$package" || {
		[ $lists = partial ] || apt-cache show "$package" >/dev/null || fatal "there is no package $package for $os. Correct k3s.packages"
		say "the installation of the package $package failed; it is tried again"
		exit 1
	}

	# Who waits asks it how far the machine is.
	[ "$package" != qemu-guest-agent ] || systemctl start qemu-guest-agent
done

# The official script. A release that is not there will not come; a network that is not there may.
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

tag=$(echo "$K3S_VERSION" | sed 's/+/%2B/')
url=https://raw.githubusercontent.com/k3s-io/k3s/$tag/install.sh

say "downloading $url"
status=$(curl --silent --show-error --location --retry 5 --retry-delay 3 --retry-all-errors --connect-timeout 15 --max-time 300 \
	--output "$tmp/install.sh" --write-out '%{http_code}' "$url") || {
	say "the download of $url failed; it is tried again"
	exit 1
}

case $status in
200) ;;
404) fatal "there is no release $K3S_VERSION of K3s: $url is not there. Correct cluster.versions.k3s" ;;
*)
	say "$url answers with status $status; it is tried again"
	exit 1
	;;
esac

if [ -n "${K3S_INSTALL_CHECKSUM-}" ]; then
	echo "$K3S_INSTALL_CHECKSUM  $tmp/install.sh" | sha256sum --check --quiet - ||
		fatal "$url does not have the checksum that k3s.installChecksum states: it was not run"
fi

# It holds the binary against the checksums of its release.
binary=$root/usr/local/bin/k3s
[ ! -e "$binary" ] || cp -p "$binary" "$tmp/before"

say "installing K3s $K3S_VERSION, $K3S_ROLE"
rm -f "$state/done"
INSTALL_K3S_VERSION=$K3S_VERSION INSTALL_K3S_SKIP_START=true INSTALL_K3S_SKIP_SELINUX_RPM=true sh "$tmp/install.sh" "$K3S_ROLE" || {
	say "the installation failed; it is tried again"
	exit 1
}

if [ -n "$K3S_CHECKSUM" ]; then
	echo "$K3S_CHECKSUM  $binary" | sha256sum --check --quiet - || {
		rm -f "$binary"
		[ ! -e "$tmp/before" ] || cp -p "$tmp/before" "$binary"
		fatal "the k3s binary does not have the checksum that k3s.checksum states: nothing of it was run"
	}
fi

# The first server is told whether the cluster begins with it, or which server to join: what is not on its disk may have been on
# another one.
if [ "${K3S_DATASTORE-}" = told ]; then
	tries=0
	while [ ! -s "$state/datastore" ]; do
		[ "$tries" -gt 0 ] || say "waiting for pulumi up to say which cluster this server is of"
		tries=$((tries + 1))
		[ "$tries" -le 300 ] || exit 1
		sleep 2
	done

	mkdir -p "$root/etc/rancher/k3s/config.yaml.d"
	cp "$state/datastore" "$root/etc/rancher/k3s/config.yaml.d/datastore.yaml"
fi

case $K3S_ROLE in
server) service=k3s ;;
*) service=k3s-agent ;;
esac

# systemd starts it again whenever it ends. Containers go on while K3s is restarted. An agent that its servers refuse does not
# end, and says so again and again: what K3s says while it starts is shown.
say "starting $service"
journalctl --unit "$service" --lines 0 --follow --output cat &
follower=$!
trap 'kill "$follower" 2>/dev/null || :; rm -rf "$tmp"' EXIT

timeout 600 systemctl restart "$service" || {
	say "$service does not come up; its log ends with:"
	journalctl --unit "$service" --lines 20 --no-pager --output cat
	exit 1
}

echo "$K3S_VERSION" >"$state/done"
say "K3s is running"
