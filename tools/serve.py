"""Serve the built book on this machine only, and open it where there is a screen."""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.server
import os
import sys
import threading
import webbrowser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "_build" / "html"


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serves files, says nothing, and never lets a browser keep an old page."""

    def log_message(self, format: str, *args: object) -> None:
        pass

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()


def make_server(port: int, folder: Path = SITE) -> http.server.ThreadingHTTPServer:
    """A server on 127.0.0.1 at `port`, or at the next free port after it."""
    handler = functools.partial(QuietHandler, directory=str(folder))
    for candidate in [*range(port, port + 20), 0] if port else [0]:
        with contextlib.suppress(OSError):
            return http.server.ThreadingHTTPServer(("127.0.0.1", candidate), handler)
    raise OSError("no free port on 127.0.0.1")


def has_screen() -> bool:
    if sys.platform in ("darwin", "win32"):
        return not os.environ.get("SSH_CONNECTION")
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--no-browser", action="store_true")
    arguments = parser.parse_args()
    if not (SITE / "index.html").exists():
        print("There is no built book yet: type `make html`.", file=sys.stderr)
        return 1
    with make_server(arguments.port) as server:
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        print(f"The book is at {address}  (Ctrl-C stops it)", flush=True)
        if has_screen() and not arguments.no_browser:
            threading.Timer(0.3, webbrowser.open, [address]).start()
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
