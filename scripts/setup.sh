#!/usr/bin/env bash
# Makes .venv from the lock, installs the sandbox's and the tests' system packages where allowed, builds the sandbox's root file system.
# Does only what is not done yet.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '%s\n' "setup: $*"; }
fail() { printf '%s\n' "setup: $*" >&2; exit 1; }

python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info[:2] < (3, 12))' 2>/dev/null \
  || fail "Python 3.12 or newer is needed, '$python' is $("$python" --version 2>&1); install it or set PYTHON=/path/to/python3.12"

stamp=.venv/.drydock-setup
wanted=$(cat requirements/*.txt pyproject.toml | sha256sum | cut -d' ' -f1)
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
  say "Python environment (.venv)"
  [ -x .venv/bin/python ] || "$python" -m venv .venv
  if command -v uv >/dev/null; then uv=uv; else
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
    uv=.venv/bin/uv
  fi
  "$uv" pip install --quiet --python .venv/bin/python --require-hashes -r requirements/dev.txt
  "$uv" pip install --quiet --python .venv/bin/python --no-deps -e .
  say "byte-compiling packages"
  .venv/bin/python -m compileall -q -j 0 .venv/lib/python3*/site-packages >/dev/null 2>&1 || true
  printf '%s\n' "$wanted" > "$stamp"
fi

missing=""
for pair in bwrap:bubblewrap mmdebstrap:mmdebstrap setpriv:util-linux; do
  command -v "${pair%%:*}" >/dev/null || missing="$missing ${pair##*:}"
done
if [ -n "$missing" ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "system packages:$missing"
    apt_log=.venv/.drydock-apt.log
    # shellcheck disable=SC2086  # a list of names
    if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $missing; } >"$apt_log" 2>&1; then
      say "apt-get failed, its last lines:"; tail -n 5 "$apt_log"
      say "the sandbox needs these packages; run: apt-get install$missing"
    fi
  else
    say "the sandbox needs system packages; run: sudo apt-get install$missing"
  fi
fi

# A PostgreSQL server for the tests, which skip without one: its programs only, no cluster of the machine's own.
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then
  say "PostgreSQL, for the tests"
  postgres_log=.venv/.drydock-postgresql.log
  install="apt-get install -y -qq --no-install-recommends"
  # Without the line in createcluster.conf the last step would make and start a cluster.
  if ! (
    export DEBIAN_FRONTEND=noninteractive
    { $install postgresql-common || { apt-get update -qq && $install postgresql-common; }; } \
      && sed -i 's/^#\?create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf \
      && $install postgresql
  ) >"$postgres_log" 2>&1; then
    say "PostgreSQL could not be installed (see $postgres_log); the tests that need it are skipped"
  fi
fi

if command -v bwrap >/dev/null && command -v mmdebstrap >/dev/null; then
  .venv/bin/drydock sandbox build || say "the sandbox's root file system could not be built; see the message above"
fi
