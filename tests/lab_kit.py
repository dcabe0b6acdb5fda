"""A real JupyterLab in a real browser, for tests."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

SETTINGS = {
    # All cells in the page, also those that are out of sight.
    "notebook-extension/tracker": {"windowingMode": "none", "recordTiming": False},
    # No question at the start, and nothing asked of other servers.
    "apputils-extension/notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
        "doNotDisturbMode": True,
    },
}
READY = """() => {
    const context = window.jupyterapp?.shell?.currentWidget?.context;
    const kernel = context?.sessionContext?.session?.kernel;
    return Boolean(context?.isReady && context.sessionContext.isReady
        && kernel?.connectionStatus === "connected" && kernel.status === "idle");
}"""
ASK = """async (code) => {
    const context = window.jupyterapp.shell.currentWidget.context;
    const asked = context.sessionContext.session.kernel.requestExecute({ code });
    let said = "";
    asked.onIOPub = ({ header, content }) => {
        if (header.msg_type === "stream") said += content.text;
        if (header.msg_type === "error") said += content.evalue;
    };
    await asked.done;
    return said.trim();
}"""


class Lab:
    """A running JupyterLab: `folder` holds its notebooks."""

    def __init__(self, address: str, token: str, folder: Path) -> None:
        self.address, self.token, self.folder = address, token, folder

    def open(self, browser: Any, notebook: Path) -> Session:
        """Open a copy of a notebook in a browser of its own, with a fresh kernel."""
        shutil.copy(notebook, self.folder / notebook.name)
        context = browser.new_context(viewport={"width": 1366, "height": 900})
        page = context.new_page()
        session = Session(page)
        page.on("pageerror", lambda error: session.errors.append(str(error)))

        def route(route: Any) -> None:
            url = route.request.url
            if url.startswith((self.address, "data:", "blob:")):
                route.continue_()
            else:
                session.foreign.append(url)
                route.abort()

        context.route("**/*", route)
        page.goto(
            f"{self.address}lab/workspaces/test/tree/{notebook.name}"
            f"?reset&token={self.token}"
        )
        # The sign in the tool bar is not enough: it says idle before there is a kernel.
        page.wait_for_function(READY, timeout=180_000)
        return session


class Session:
    """One notebook, open in JupyterLab."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.errors: list[str] = []
        self.foreign: list[str] = []

    def run_all(self) -> None:
        """Run all cells to the end; AssertionError with the text of a failure."""
        self.page.evaluate(
            "() => window.jupyterapp.commands.execute('notebook:run-all-cells')"
        )
        self.page.wait_for_function(READY, timeout=900_000)
        outputs = self.page.locator(
            '.jp-OutputArea-output[data-mime-type="application/vnd.jupyter.stderr"],'
            '.jp-OutputArea-output[data-mime-type="application/vnd.jupyter.error"]'
        )
        assert outputs.all_inner_texts() == []

    def ask(self, code: str) -> str:
        """What the kernel prints for some code."""
        return str(self.page.evaluate(ASK, code))

    def close(self) -> None:
        """End the kernel and close the page."""
        with suppress(Exception):
            self.page.evaluate(
                "() => window.jupyterapp.shell.currentWidget.context"
                ".sessionContext.shutdown()"
            )
        self.page.context.close()


@contextmanager
def running_lab(folder: Path) -> Iterator[Lab]:
    """Start JupyterLab on a free port, with settings of its own; end it afterwards."""
    settings = folder / "settings"
    for name, content in SETTINGS.items():
        place = settings / "@jupyterlab" / f"{name}.jupyterlab-settings"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(content))
    notebooks = folder / "notebooks"
    notebooks.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    command = [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
        *("--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}"),
        *("--ServerApp.port_retries=0", f"--ServerApp.root_dir={notebooks}"),
        *(f"--IdentityProvider.token={token}", "--LabApp.expose_app_in_browser=True"),
    ]
    places = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "IPYTHONDIR": "ipython",
    }
    environment = dict(os.environ, PYDEVD_DISABLE_FILE_VALIDATION="1")
    environment |= {name: str(folder / place) for name, place in places.items()}
    log = folder / "lab.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
    address = f"http://127.0.0.1:{port}/"
    try:
        _wait_for(f"{address}api", process, log)
        yield Lab(address, token, notebooks)
    finally:
        process.terminate()  # it ends its kernels first
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 90
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        with suppress(urllib.error.URLError, OSError):
            urllib.request.urlopen(url, timeout=5).close()
            return
        time.sleep(0.2)
    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()[-2000:]}")
