#!/bin/sh
# Make .venv as requirements.txt and pyproject.toml ask for it: quick when nothing
# changed, put right after a `git pull` or a move of the folder. Called by make.
#
#   PYTHON=python3.12 sh tools/venv.sh
#   REQUIREMENTS=requirements.in sh tools/venv.sh     the newest versions, unpinned
set -eu
cd "$(dirname "$0")/.."
root=$(pwd -P)
stamp=.venv/.installed
requirements=${REQUIREMENTS:-requirements.txt}

say() { printf '%s\n' "$*" >&2; }

in_range='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'
has_venv='import ensurepip, venv'

version() { "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])'; }

want="$(cat "$requirements" pyproject.toml | cksum) $root"

if [ -x .venv/bin/python ] && [ -z "${PYTHON:-}" ] && [ -f "$stamp" ] \
    && [ "$(sed -n 1p "$stamp")" = "$want" ] \
    && .venv/bin/python -c "$in_range" 2>/dev/null; then
    exit 0
fi

# Which Python: the one asked for, or the newest of those that fit.
found=
no_venv=
for candidate in ${PYTHON:-python3.13 python3.12 python3.11 python3 python}; do
    command -v "$candidate" >/dev/null 2>&1 || continue
    "$candidate" -c "$in_range" >/dev/null 2>&1 || continue
    if "$candidate" -c "$has_venv" >/dev/null 2>&1; then
        found=$candidate
        break
    fi
    no_venv="${no_venv:-$candidate}"
done

if [ -z "$found" ] && [ -z "$no_venv" ]; then
    say "This book needs Python 3.11, 3.12 or 3.13."
    if [ -n "${PYTHON:-}" ]; then
        say "PYTHON=$PYTHON is not one of them, or does not start."
    else
        say "Looked for: python3.13 python3.12 python3.11 python3 python."
    fi
    say "Install one (https://www.python.org/downloads/), or name it:"
    say "    make PYTHON=/path/to/python3.12 book"
    exit 1
fi

chosen=${found:-$no_venv}
chosen_version=$(version "$chosen")

# Keep the environment where its Python is the chosen one and it lies where it was
# made; otherwise begin again.
if [ -d .venv ]; then
    have=$(version .venv/bin/python 2>/dev/null || echo none)
    place=$(sed -n 2p "$stamp" 2>/dev/null || true)
    asked=${PYTHON:+yes}
    if [ "$have" = none ] || [ "${place:-$root}" != "$root" ] \
        || ! .venv/bin/python -c "$in_range" \
        || ! .venv/bin/python -m pip --version >/dev/null 2>&1 \
        || { [ "$asked" = yes ] && [ "$have" != "$chosen_version" ]; }; then
        say "Making .venv anew (it was for Python $have)."
        rm -rf .venv
    fi
fi

if [ -f "$stamp" ] && [ "$(sed -n 1p "$stamp")" = "$want" ]; then
    exit 0
fi

if [ ! -d .venv ]; then
    say "Making .venv with Python $chosen_version ..."
    if [ -n "$found" ]; then
        "$found" -m venv .venv
    elif "$no_venv" -m virtualenv --version >/dev/null 2>&1; then
        "$no_venv" -m virtualenv --quiet .venv
    elif command -v uv >/dev/null 2>&1; then
        uv venv --quiet --seed --python "$no_venv" .venv
    else
        short=${chosen_version%.*}
        say "Python $chosen_version is here, but without its venv module."
        say "On Debian or Ubuntu: apt-get install python$short-venv"
        say "Without administrator rights: install virtualenv or uv for yourself and try"
        say "again, or name another Python: make PYTHON=/path/to/python3.12 ..."
        exit 1
    fi
fi

say "Installing what $requirements lists (a few minutes the first time) ..."
rm -f "$stamp"
pip=".venv/bin/python -m pip --disable-pip-version-check install --quiet"
if ! $pip --requirement "$requirements"; then
    say "The requirements could not be installed; pip's message is above."
    say "Check the network, then type the same command again."
    exit 1
fi
# No build isolation: setuptools is among the pinned requirements.
if ! $pip --no-build-isolation --no-deps --editable .; then
    say "The library itself could not be installed; pip's message is above."
    exit 1
fi
printf '%s\n%s\n' "$want" "$root" >"$stamp"
say "Ready: .venv, Python $(version .venv/bin/python)."
