#!/usr/bin/env bash
# Installs the system packages that the make targets need and this machine lacks (Debian, Ubuntu).
# As root it calls apt-get; for anyone else it prints the one command to run.
set -euo pipefail

has_header() {  # has_header HEADER [FLAGS...]
  echo "#include <$1>" | g++ "${@:2}" -x c++ -std=c++20 -E - >/dev/null 2>&1
}
has_python_headers() {
  has_header Python.h "-I$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')"
}

missing=()
require() {  # require PACKAGE COMMAND...: PACKAGE is needed where COMMAND fails
  local package=$1
  shift
  "$@" >/dev/null 2>&1 || missing+=("$package")
}

require g++ command -v g++
require make command -v make
require cmake command -v cmake
require python3 command -v python3
require python3-venv python3 -c 'import ensurepip, venv'
require python3-dev has_python_headers
require libgtest-dev has_header gtest/gtest.h
require libcxxopts-dev has_header cxxopts.hpp
if ((EUID == 0)); then
  # Slow links between network namespaces, which root alone may make; others skip those tests.
  require iproute2 command -v tc
fi

if ((${#missing[@]} == 0)); then
  exit 0
fi
install=(apt-get install -y --no-install-recommends "${missing[@]}")
if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
  echo "This machine lacks: ${missing[*]}. Run this once, then make again:" >&2
  echo "    sudo apt-get update && sudo ${install[*]}" >&2
  exit 1
fi
echo "bootstrap: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
# A stale package index is the usual reason for a failure, and refreshing it the cure.
"${install[@]}" >/dev/null 2>&1 || { apt-get update -qq && "${install[@]}" >/dev/null; }
