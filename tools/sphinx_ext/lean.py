"""Leave out of the built site what no page loads.

The theme brings 2,000 icons as fonts, as rules of its stylesheet and as a script; a
page shows about twenty. It brings the sources of its scripts and its words in forty-six
languages. Notebooks are offered for download with every output that the page shows
already: here they are given without, to be run. Together that halves the site, and more
than halves the first page.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from pathlib import Path
from typing import Any

from fontTools import subset
from sphinx.application import Sphinx

UNUSED = (
    "**/*.map",
    "scripts/fontawesome.js*",
    "sphinx-thebe.*",
    "*webpack-macros.html",
    "locales",
)
ICON = re.compile(r"\bfa-([a-z0-9-]+)")
ICON_RULE = re.compile(r'(?:\.fa-[a-z0-9-]+:{1,2}before,?)+\{content:"\\[0-9a-f]+"\}')
POINT = re.compile(r"\\([ef][0-9a-f]{3})\b|([\ue000-\uf8ff])")
FACE = re.compile(
    r'src:url\(([^)]*/fa-[a-z0-9-]+)\.woff2\) format\("woff2"\),'
    r'url\([^)]*\.ttf\) format\("truetype"\)'
)
MAPPED = re.compile(r"^(?://|/\*)# sourceMappingURL=.*$", re.M)


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def icons(site: Path) -> set[str]:
    """The names of the icons that pages and scripts ask for."""
    files = [*site.rglob("*.html"), *(site / "_static").rglob("*.js")]
    return {
        name
        for file in files
        if "vendor" not in file.parts and not file.name.startswith("fontawesome")
        for name in ICON.findall(read(file))
    }


def lighten_icons(site: Path) -> None:
    """Keep the rules and the glyphs of icons that are shown, and no others."""
    static = site / "_static"
    wanted = icons(site)

    def kept(rule: re.Match[str]) -> str:
        return rule[0] if set(ICON.findall(rule[0])) & wanted else ""

    sheets = {sheet: read(sheet) for sheet in static.rglob("*.css")}
    points: set[int] = set()
    for sheet, text in sheets.items():
        lighter = ICON_RULE.sub(kept, text)
        points |= {int(a, 16) if a else ord(b) for a, b in POINT.findall(lighter)}
        lighter = FACE.sub(r'src:url(\1.woff) format("woff")', lighter)
        if lighter != text:
            sheet.write_text(lighter, encoding="utf-8")

    logging.getLogger("fontTools").setLevel(logging.ERROR)
    options = subset.Options(flavor="woff", layout_features=[], name_IDs=["*"])
    for file in (static / "vendor" / "fontawesome" / "webfonts").glob("*.ttf"):
        font = subset.load_font(str(file), options)
        subsetter = subset.Subsetter(options)
        subsetter.populate(unicodes=points)
        subsetter.subset(font)
        subset.save_font(font, str(file.with_suffix(".woff")), options)
        file.unlink()
        file.with_suffix(".woff2").unlink(missing_ok=True)


def without_outputs(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook as it is before it was run."""
    notebook["metadata"].pop("widgets", None)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell.update(outputs=[], execution_count=None)
    return notebook


def lighten(app: Sphinx, exception: Exception | None) -> None:
    if exception or app.builder.format != "html":
        return
    site = Path(app.outdir)
    static = site / "_static"
    for pattern in UNUSED:
        for path in list(static.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for file in [*static.rglob("*.js"), *static.rglob("*.css")]:
        if "sourceMappingURL" in (text := read(file)):
            file.write_text(MAPPED.sub("", text), encoding="utf-8")
    lighten_icons(site)
    for path in (site / "_sources").rglob("*.ipynb"):
        lighter = without_outputs(json.loads(read(path)))
        path.write_text(
            json.dumps(lighter, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("build-finished", lighten, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
