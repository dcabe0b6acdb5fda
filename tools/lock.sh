#!/bin/sh
# Resolve requirements.in into requirements.txt: one file, pinned with all that is
# pulled in, that holds for Python 3.11 to 3.13. Used by `make lock`.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
.venv/bin/python -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet uv
cat >"$work/head" <<'END'
# Written by `make lock` from requirements.in: do not edit.
# One set of versions for Python 3.11, 3.12 and 3.13.
END
"$work/venv/bin/uv" pip compile --quiet --universal --python-version 3.11 \
    --fork-strategy fewest --upgrade --no-header --no-annotate \
    --no-emit-index-url --no-emit-find-links \
    requirements.in --output-file "$work/lock"
cat "$work/head" "$work/lock" >requirements.txt
echo "requirements.txt: $(grep -c == requirements.txt) packages"
