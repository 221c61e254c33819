# What the official script would get from GitHub comes from the mirror, and so do the images of the release, if it has them.
# The names are those of the release, whose checksums cover all of them. The binary is last: nothing is left to fail then.
for file in sha256sum-amd64.txt k3s-airgap-images-amd64.tar.zst k3s; do
	url=$K3S_MIRROR/$tag/$file
	say "downloading $url"
	status=$(curl --silent --show-error --location --retry 5 --retry-delay 3 --retry-all-errors --connect-timeout 15 --max-time 1800 \
		--output "$tmp/$file" --write-out '%{http_code}' "$url") || status=000
	case "$status $file" in
	"200 sha256sum-amd64.txt") continue ;;
	"200 "*) ;;
	"404 k3s-airgap-images-amd64.tar.zst")
		say "the mirror has no images: they come from registries"
		continue
		;;
	*)
		say "the download of $url failed with status $status; it is tried again"
		exit 1
		;;
	esac

	sum=$(grep " $file\$" "$tmp/sha256sum-amd64.txt") || sum=
	echo "${sum%% *}  $tmp/$file" | sha256sum --check --quiet - || {
		say "$url does not have the checksum of sha256sum-amd64.txt; it is tried again"
		exit 1
	}

	case $file in
	k3s)
		chmod 755 "$tmp/k3s"
		mv -f "$tmp/k3s" "$binary"
		;;
	*)
		mkdir -p "$root/var/lib/rancher/k3s/agent/images"
		mv -f "$tmp/$file" "$root/var/lib/rancher/k3s/agent/images/$file"
		;;
	esac
done

