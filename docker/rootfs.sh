#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# rootfs.sh ROOT PROGRAM... [FOLDER...] [debian:PACKAGE...]   fills the folder ROOT with what these programs need to run, and
# nothing else: the programs without their symbols, in /usr/local/bin; the shared libraries that they are linked with, each
# with its licence; the C library's configuration for names of users and hosts; the authorities of the public web. No shell.
# A FOLDER is taken as it is, to the same place; likewise the files of an installed Debian package, with what they are linked
# with and without its manual. What it depends on is not followed. What there is, with versions, is written to
# /usr/share/doc/pushpull/sbom.spdx.json: sbom.py.
set -euo pipefail

(($# >= 2)) || { sed -n 's/^# \{0,1\}//p' "$0" | sed -n 3,8p >&2; exit 2; }
root=$1
shift
contents=("$@")
[[ -d $root && -z $(ls -A "$root") ]] || { echo "rootfs.sh: $root must be an empty folder" >&2; exit 2; }

# The libraries of these programs, and the loader, one path a line. Other files have none.
libraries() {
  { ldd "$@" 2>/dev/null || true; } | awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\/.*ld-linux/ { print $1 }' | sort -u
}

# packages FILE...: which own them, one a line. Debian knows some files by the place that they had before /lib became a link
# to /usr/lib, so both are asked for.
packages() {
  local files
  mapfile -t files < <(readlink -f "$@")
  { dpkg-query --search "${files[@]}" "${files[@]#/usr}" 2>/dev/null || true; } | cut -d: -f1 | sort -u
}

# copy_package PACKAGE: its files and links.
copy_package() {
  local file
  dpkg-query --listfiles "$1" | grep --invert-match --extended-regexp '^/usr/share/(doc|doc-base|lintian|locale|man)/' |
    while read -r file; do [[ -d $file && ! -L $file ]] || printf '%s\n' "$file"; done |
    xargs --delimiter='\n' cp --no-dereference --parents --target-directory="$root"
}

mkdir -p "$root"/usr/local/bin "$root"/etc/ssl/certs "$root"/usr/share/doc
mkdir -m 1777 "$root"/tmp
mkdir -p "$root"/usr/lib "$root"/usr/lib64
ln -s usr/lib usr/lib64 "$root"  # as in Debian: a library has two paths and is there once
programs=() named=()
for path; do
  if [[ $path == debian:* ]]; then
    named+=("${path#debian:}")
    copy_package "${path#debian:}"
  elif [[ -d $path ]]; then
    mkdir -p "$root/$path"
    cp -RL "$path/." "$root/$path/"
  else
    programs+=("$path")
  fi
done
for program in "${programs[@]}"; do
  strip --strip-unneeded -o "$root/usr/local/bin/$(basename "$program")" "$program"
done
# Links of packages to libraries, which they load by these.
mapfile -t linked < <(find "$root" -xtype l -name '*.so' -printf '/%P\n' | while read -r link; do
  [[ ! -e $link ]] || realpath --no-symlinks "$(dirname "$link")/$(readlink "$link")"
done)
((${#linked[@]} == 0)) || cp -L --parents "${linked[@]}" "$root"
mapfile -t copied < <(find "$root" -type f \( -name '*.so' -o -perm -u+x \))
mapfile -t libraries < <(libraries "${programs[@]}" "${copied[@]}")
cp -L --parents "${libraries[@]}" "$root"
for package in $(packages "${libraries[@]}") "${named[@]}"; do
  mkdir -p "$root/usr/share/doc/$package"
  cp -L "/usr/share/doc/$package/copyright" "$root/usr/share/doc/$package/"
done

cp -L /etc/ssl/certs/ca-certificates.crt "$root"/etc/ssl/certs/
printf 'root:x:0:0::/:/sbin/nologin\npushpull:x:65532:65532::/tmp:/sbin/nologin\n' >"$root"/etc/passwd
printf 'root:x:0:\npushpull:x:65532:\n' >"$root"/etc/group
printf 'passwd: files\ngroup: files\nhosts: files dns\n' >"$root"/etc/nsswitch.conf

/usr/bin/python3 -B "$(dirname "$0")/sbom.py" "$root" "${contents[@]}"
