"""axe-core's checks of a page: what would stop somebody from reading it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parent / "vendor" / "axe-core" / "axe.min.js"
# Rules that look at colours: the only ones whose answer depends on the theme.
OF_COLOUR = ("color-contrast", "link-in-text-block")
# Left out by axe unless it is asked for; targets of 24 by 24 pixels (WCAG 2.2, 2.5.8).
ALSO = ("target-size",)
RUN = """async ([only, also, apart]) => {
    const found = await axe.run(
        apart.length ? { exclude: apart } : document,
        {
            resultTypes: ["violations"],
            ...(only.length
                ? { runOnly: only, preload: false }
                : { rules: Object.fromEntries(
                    also.map((rule) => [rule, { enabled: true }])) }),
        },
    );
    return found.violations.flatMap(({ id, impact, nodes }) => nodes.map(
        (node) => `${impact} ${id}: ${node.target.join(" ")}  ${node.failureSummary}`
            .replace(/\\s+/g, " ").slice(0, 400)));
}"""


@cache
def _script() -> str:
    if not SCRIPT.exists():
        pytest.fail(
            "axe-core is missing: python tools/vendor.py --checks", pytrace=False
        )
    return SCRIPT.read_text(encoding="utf-8")


def findings(
    page: Any, *, colours_only: bool = False, apart: tuple[str, ...] = ()
) -> list[str]:
    """What axe finds wrong, each with its impact, its rule and its place.

    colours_only
        ask the rules of colours alone.
    apart
        selectors of parts that are not looked at.
    """
    if not page.evaluate("Boolean(window.axe)"):
        page.evaluate(_script())
    only = OF_COLOUR if colours_only else ()
    return list(page.evaluate(RUN, [list(only), list(ALSO), list(apart)]))
