# What the scripts share: how they speak, and how they find or install tools.
# Sourced by bash scripts that have set `root`.

step() { printf '\n\033[1m==> %s\033[0m\n' "$*"; }
fail() { printf '%s: %s\n' "${0##*/}" "$*" >&2; exit 1; }

# as_root COMMAND...: runs it as root, by sudo when that is needed.
as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"
  elif command -v sudo >/dev/null; then sudo "$@"
  else fail "to install packages, run this as root once, or install sudo"; fi
}

# without_services COMMAND...: runs it while no installed package may start a
# service: the tests bring their own servers up and down.
without_services() {
  local policy=/usr/sbin/policy-rc.d
  if [ -e "$policy" ]; then "$@"; return; fi
  (
    trap 'as_root rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
    "$@"
  )
}

# install PACKAGE...: Debian packages, without starting what they serve.
install() {
  command -v apt-get >/dev/null || fail "please install what Debian and Ubuntu call: $*"
  step "Installing $*"
  as_root apt-get update -qq
  without_services as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# need PROGRAM PACKAGE...: installs the packages unless the program is there.
need() {
  local program=$1; shift
  command -v "$program" >/dev/null || install "$@"
  command -v "$program" >/dev/null || fail "$program is still missing after installing $*"
}

# need_go: a Go that is new enough, or can fetch one that is.
need_go() {
  command -v go >/dev/null || fail "go is missing: install Go $(sed -n 's/^go //p' "$root/go.mod") or newer from https://go.dev/dl/"
  (cd "$root" && go version >/dev/null) || fail "this Go is too old: $(sed -n 's/^go //p' "$root/go.mod") or newer is needed"
}

# need_python: a Python of at least 3.10, in $python.
need_python() {
  for python in python3 python3.13 python3.12 python3.11 python3.10; do
    command -v "$python" >/dev/null && "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' && return
  done
  fail "python3 of at least 3.10 is missing: install it"
}

# python_env DIR PACKAGE...: a virtual environment with these in it, in $venv.
python_env() {
  venv=$1; shift
  need_python
  if ! "$python" -m venv "$venv" >/dev/null 2>&1; then
    install python3-venv
    "$python" -m venv "$venv"
  fi
  "$venv/bin/pip" install --quiet --disable-pip-version-check "$@"
}
