"""Build the book strictly into _build/html: any warning is a failure.

The build is clean each time (`--all`): assets that changed are not copied otherwise.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "_build" / "html"


def main() -> int:
    # An old page of a chapter that was renamed must not linger.
    shutil.rmtree(SITE, ignore_errors=True)
    command = [
        str(Path(sys.executable).with_name("jupyter-book")),
        *("build", "-n", "-W", "--keep-going", "--all", "."),
    ]
    environment = dict(os.environ, PYTHONWARNINGS="ignore", NO_COLOR="1")
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    log = ROOT / "_build" / "build.log"
    log.parent.mkdir(exist_ok=True)
    log.write_text(done.stdout, encoding="utf-8")
    if done.returncode == 0 and (SITE / "index.html").exists():
        print("Built: _build/html/index.html")
        return 0
    lines = done.stdout.splitlines()
    telling = [line for line in lines if "WARNING:" in line or "ERROR:" in line.upper()]
    print("\n".join(telling or lines[-40:]), file=sys.stderr)
    print(
        "\nThe book was not built: mend the lines above (each names its file and\n"
        "line), then type the command again. All messages: _build/build.log",
        file=sys.stderr,
    )
    return done.returncode or 1


if __name__ == "__main__":
    sys.exit(main())
