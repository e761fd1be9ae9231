#!/usr/bin/env bash
# For a machine with a GPU but without a network: puts what the build needs beside a compiler, CMake and CUDA
# into .packages/, which check.sh uses where it is. Run this on Debian or Ubuntu of the same architecture, then
# take the folder (4 MB of headers and static libraries) along with the sources.
set -euo pipefail
cd "$(dirname "$0")/../.."
target=$PWD/.packages
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$work" && apt-get download -qq nlohmann-json3-dev libcli11-dev doctest-dev libpcre2-dev libedit-dev \
  libbsd-dev libmd-dev libncurses-dev 2>"$work/log") || { cat "$work/log"; exit 1; }
for package in "$work"/*.deb; do dpkg -x "$package" "$work/all"; done
rm -rf "$target"
mkdir -p "$target/usr/include" "$target/usr/lib"
for path in include/nlohmann include/CLI include/doctest include/pcre2.h include/histedit.h share/cmake; do
  mkdir -p "$(dirname "$target/usr/$path")"
  cp -r "$work/all/usr/$path" "$target/usr/$path"
done
# Static, so that nothing has to be found when the program starts.
for library in pcre2-8 edit bsd md tinfo; do cp "$work"/all/usr/lib/*/lib$library.a "$target/usr/lib/"; done
echo "$target: $(du -sh "$target" | cut -f1)"
