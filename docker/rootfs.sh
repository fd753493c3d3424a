#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# rootfs.sh ROOT PROGRAM...   fills the folder ROOT with what these programs need to run, and nothing else: the programs
# without their symbols, in /usr/local/bin; the shared libraries that they are linked with, each with its licence; the
# C library's configuration for names of users and hosts; the authorities of the public web. No shell, no packages.
set -euo pipefail

(($# >= 2)) || { sed -n 's/^# \{0,1\}//p' "$0" | sed -n 3,5p >&2; exit 2; }
root=$1
shift
[[ -d $root && -z $(ls -A "$root") ]] || { echo "rootfs.sh: $root must be an empty folder" >&2; exit 2; }

# The libraries of these programs, and the loader, one path a line.
libraries() { ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\/.*ld-linux/ { print $1 }' | sort -u; }

# Debian knows some files by the place that they had before /lib became a link to /usr/lib.
package_of() {
  local file
  file=$(readlink -f "$1")
  { dpkg-query --search "$file" || dpkg-query --search "${file#/usr}"; } 2>/dev/null | cut -d: -f1 | head -n 1
}

mkdir -p "$root"/usr/local/bin "$root"/etc/ssl/certs "$root"/usr/share/doc
mkdir -m 1777 "$root"/tmp
for program; do
  strip --strip-unneeded -o "$root/usr/local/bin/$(basename "$program")" "$program"
done
while read -r library; do
  mkdir -p "$root/$(dirname "$library")"
  cp -L "$library" "$root/$library"
  package=$(package_of "$library")
  mkdir -p "$root/usr/share/doc/$package"
  cp -L "/usr/share/doc/$package/copyright" "$root/usr/share/doc/$package/"
done < <(libraries "$@")

cp -L /etc/ssl/certs/ca-certificates.crt "$root"/etc/ssl/certs/
printf 'root:x:0:0::/:/sbin/nologin\npushpull:x:65532:65532::/tmp:/sbin/nologin\n' >"$root"/etc/passwd
printf 'root:x:0:\npushpull:x:65532:\n' >"$root"/etc/group
printf 'passwd: files\ngroup: files\nhosts: files dns\n' >"$root"/etc/nsswitch.conf
