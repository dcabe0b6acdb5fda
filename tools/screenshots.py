"""Take pictures of built pages: wide, as on a tablet and narrow, light and dark.

    python tools/screenshots.py                     every page
    python tools/screenshots.py notebooks/04 map    pages whose address contains one
    python tools/screenshots.py --fold notebooks/04 the first screen only
    python tools/screenshots.py --sheet             all pages of a look in one picture
    python tools/screenshots.py --look narrow-dark  this look only

Build the book first (`make html`). The PNG files go to screenshots/.
"""

from __future__ import annotations

import argparse
import io
import sys
import threading
from pathlib import Path
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).resolve().parent))

from browser import NoBrowser, launch
from serve import SITE, make_server

ROOT = Path(__file__).resolve().parents[1]
WIDTHS = {"wide": 1440, "tablet": 768, "narrow": 360}
LOOKS = {
    name + ("-dark" if scheme == "dark" else ""): {
        "viewport": {"width": width, "height": 900},
        "color_scheme": scheme,
    }
    for name, width in WIDTHS.items()
    for scheme in ("light", "dark")
}
# Taller pictures are cut into pieces, so that their text stays readable.
PIECE = 3000
# On a sheet, pages stand side by side: so wide, and so much of their height.
THUMB, THUMB_HEIGHT, COLUMNS = 260, 1100, 12


def pages(wanted: list[str]) -> list[str]:
    """Addresses of the built pages that contain one of `wanted`."""
    found = sorted(
        path.relative_to(SITE).as_posix()
        for folder in ("book", "notebooks")
        for path in (SITE / folder).rglob("*.html")
    )
    return [
        page for page in found if not wanted or any(part in page for part in wanted)
    ]


def settle(page: object) -> None:
    """Wait until formulas and widgets are drawn."""
    page.wait_for_load_state("networkidle")  # type: ignore[attr-defined]
    page.evaluate(  # type: ignore[attr-defined]
        """async () => {
            if (window.MathJax && MathJax.startup) await MathJax.startup.promise;
            await document.fonts.ready;
            await new Promise((done) => setTimeout(done, 300));
        }"""
    )


def contact_sheet(pictures: list[bytes], target: Path) -> None:
    """All pictures in rows, made small; the foot of long ones is cut off."""
    from PIL import Image

    rows = -(-len(pictures) // COLUMNS)
    columns = min(COLUMNS, len(pictures))
    sheet = Image.new("RGB", (columns * THUMB, rows * THUMB_HEIGHT), "#808080")
    for index, data in enumerate(pictures):
        picture = Image.open(io.BytesIO(data)).convert("RGB")
        height = round(picture.height * THUMB / picture.width)
        small = picture.resize((THUMB - 8, height)).crop(
            (0, 0, THUMB - 8, min(height, THUMB_HEIGHT - 8))
        )
        sheet.paste(small, (index % COLUMNS * THUMB, index // COLUMNS * THUMB_HEIGHT))
    sheet.save(target)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", nargs="*", help="parts of page addresses")
    parser.add_argument("--to", type=Path, default=ROOT / "screenshots")
    parser.add_argument("--fold", action="store_true", help="first screen only")
    parser.add_argument("--sheet", action="store_true", help="one picture per look")
    parser.add_argument("--look", choices=LOOKS, action="append")
    arguments = parser.parse_args()
    chosen = pages(arguments.pages)
    if not chosen:
        print("No such page in _build/html. Type `make html` first.", file=sys.stderr)
        return 1

    from playwright.sync_api import sync_playwright

    arguments.to.mkdir(parents=True, exist_ok=True)
    server = make_server(0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_address[1]}/"
    with sync_playwright() as playwright:
        try:
            browser = launch(playwright)
        except NoBrowser as error:
            print(error, file=sys.stderr)
            return 1
        for look in arguments.look or LOOKS:
            page = browser.new_context(**LOOKS[look]).new_page()
            small: list[bytes] = []
            for name in chosen:
                page.goto(base + quote(name))
                settle(page)
                stem = f"{name.removesuffix('.html').replace('/', '-')}-{look}"
                if arguments.fold:
                    target = arguments.to / f"{stem}.png"
                    page.screenshot(path=target)
                    print(target)
                    continue
                if arguments.sheet:
                    small.append(page.screenshot(full_page=True))
                    continue
                size = page.evaluate(
                    "[document.documentElement.scrollWidth,"
                    " document.documentElement.scrollHeight]"
                )
                for piece, top in enumerate(range(0, size[1], PIECE)):
                    target = arguments.to / f"{stem}-{piece + 1}.png"
                    page.screenshot(
                        path=target,
                        full_page=True,
                        clip={
                            "x": 0,
                            "y": top,
                            "width": LOOKS[look]["viewport"]["width"],
                            "height": min(PIECE, size[1] - top),
                        },
                    )
                    print(target)
            if small:
                target = arguments.to / f"sheet-{look}.png"
                contact_sheet(small, target)
                print(target)
        browser.close()
    server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
