"""A chapter open in the built JupyterLite, in a real browser.

Every request to another server is refused and noted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psutil

READY = """() => {
    const context = window.jupyterapp?.shell?.currentWidget?.context;
    const kernel = context?.sessionContext?.session?.kernel;
    return Boolean(context?.isReady && context.sessionContext.isReady
        && kernel?.connectionStatus === "connected" && kernel.status === "idle");
}"""
# Runs all cells; `live.first` is when the first of them showed something.
RUN = """() => {
    const panel = window.jupyterapp.shell.currentWidget;
    const kernel = panel.context.sessionContext.session.kernel;
    const outputs = ["stream", "execute_result", "display_data", "error"];
    window.live = { first: null, done: false };
    kernel.iopubMessage.connect((_, { header }) => {
        if (window.live.first === null && outputs.includes(header.msg_type))
            window.live.first = performance.now();
    });
    const run = window.jupyterapp.commands.execute("notebook:run-all-cells");
    run.finally(() => { window.live.done = true; });
}"""
CELLS = """() => window.jupyterapp.shell.currentWidget.content.widgets
    .filter((cell) => cell.model.type === "code")
    .map((cell) => [cell.model.executionCount, cell.model.outputs.toJSON()])"""


class LivePage:
    """One chapter in JupyterLite, in a browser of its own.

    first_output, whole
        seconds from the moment the page is asked for, after :meth:`run_all`.
    megabytes
        what was loaded until Python was ready, not counting what the server or the
        browser compresses; memory: MB of the process that shows the page, at the end.
    """

    def __init__(self, browser: Any, address: str, chapter: str) -> None:
        self.context = browser.new_context(viewport={"width": 1366, "height": 900})
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.foreign: list[str] = []
        self.missing: list[str] = []
        self.megabytes = self.memory = self.first_output = self.whole = 0.0
        self._address = address
        self._sizes: dict[str, int] = {}
        self.context.route("**/*", self._route)
        self.page.on("response", self._answered)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self._began = time.perf_counter()
        self.page.goto(f"{address}lite/notebooks/index.html?path={chapter}.ipynb")

    def _route(self, route: Any) -> None:
        url = route.request.url
        if url.startswith((self._address, "data:", "blob:")):
            route.continue_()
        else:
            self.foreign.append(url)
            route.abort()

    def _answered(self, response: Any) -> None:
        if response.status >= 400:
            self.missing.append(f"{response.status} {response.url}")
        self._sizes[response.url] = int(response.headers.get("content-length", 0))

    def run_all(self, timeout: float, said: Callable[[str], None] = print) -> None:
        """Run all cells to the end; AssertionError where one fails or warns."""
        self.page.wait_for_function(READY, timeout=1000 * timeout)
        self.megabytes = sum(self._sizes.values()) / 1e6
        said(f"Python is ready after {time.perf_counter() - self._began:.0f} s")
        self.page.evaluate(RUN)
        self.page.wait_for_function("window.live.done", timeout=1000 * timeout)
        self.whole = time.perf_counter() - self._began
        self.first_output = self.page.evaluate("window.live.first") / 1000
        self.memory = max(
            process.memory_info().rss / 1e6
            for process in psutil.Process().children(recursive=True)
            if "--type=renderer" in process.cmdline()
        )
        cells = self.page.evaluate(CELLS)
        faults = [
            f"cell {count}: {output.get('ename', '')} {output.get('evalue', '')}"
            f"{output.get('text', '')}"
            for count, outputs in cells
            for output in outputs
            if output["output_type"] == "error" or output.get("name") == "stderr"
        ]
        assert not faults, "\n".join(faults)
        assert [count for count, _ in cells] == list(range(1, len(cells) + 1))

    def move_sliders(self) -> int:
        """Move each slider by a key: what is said below it changes. Their number."""
        moved = 0
        for widget in self.page.locator(".jp-OutputArea-output .specdec-widget").all():
            said = widget.locator("figcaption, [role=status]").first
            for slider in widget.get_by_role("slider").all():
                handle = slider.element_handle()
                self.page.wait_for_function("slider => !slider.disabled", arg=handle)
                before = said.inner_text()
                last = slider.input_value() == slider.get_attribute("max")
                slider.focus()
                self.page.keyboard.press("ArrowLeft" if last else "ArrowRight")
                self.page.wait_for_function(
                    "([element, text]) => element.innerText !== text",
                    arg=[said.element_handle(), before],
                    timeout=60_000,
                )
                moved += 1
        return moved

    def check_quiet(self) -> None:
        """No error, nothing asked of another server, no file missing."""
        assert (self.errors, self.foreign, self.missing) == ([], [], [])

    def close(self) -> None:
        self.context.close()
