#!/usr/bin/env bash
# Installs the packages that the build needs and that are missing; says which and why, and is silent when
# nothing is. Debian and Ubuntu are handled; elsewhere it prints the names and lets CMake explain.
set -euo pipefail

declare -A why=(
  [g++]="the C++20 compiler" [cmake]="the build system" [ninja-build]="runs the build in parallel"
  [nlohmann-json3-dev]="reads config.json and tokenizer.json" [libpcre2-dev]="splits text for tokenizers"
  [libcli11-dev]="parses the command line" [doctest-dev]="the test framework"
  [libedit-dev]="edits lines in the chat"
)
missing=()
if command -v dpkg-query >/dev/null 2>&1; then
  for p in g++ cmake ninja-build nlohmann-json3-dev libpcre2-dev libcli11-dev doctest-dev libedit-dev; do
    dpkg-query -W -f='${Status}\n' "$p" 2>/dev/null | grep -q '^install ok installed$' || missing+=("$p")
  done
fi
# A compiler or CMake that did not come as a package serves as well.
keep=()
for p in ${missing[@]+"${missing[@]}"}; do
  case "$p" in
    g++) command -v "${CXX:-g++}" >/dev/null 2>&1 && continue ;;
    cmake) command -v cmake >/dev/null 2>&1 && continue ;;
    ninja-build) command -v ninja >/dev/null 2>&1 && continue ;;
  esac
  keep+=("$p")
done
[ ${#keep[@]} -eq 0 ] && exit 0

echo "nibble needs these packages to build:"
for p in "${keep[@]}"; do echo "  $p: ${why[$p]}"; done
sudo=""
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null 2>&1; then
    echo "run as root: apt-get install ${keep[*]}" >&2
    exit 1
  fi
  sudo="sudo"
fi
export DEBIAN_FRONTEND=noninteractive
install() { $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${keep[@]}" >/dev/null; }
install 2>/dev/null || { $sudo apt-get update -qq && install; }
