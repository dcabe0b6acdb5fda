"""What the tests of the pages share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

WIDE = {"width": 1366, "height": 900}
NARROW = {"width": 360, "height": 740}


@dataclass
class Visit:
    """What happened while a page was open, and the page itself."""

    page: Any
    foreign: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def place(slider: Any, index: int, stops: int) -> tuple[float, float]:
    """Where the mouse must be for a range input to stand at `index` of its stops."""
    slider.scroll_into_view_if_needed()
    box = slider.bounding_box()
    thumb = 16  # its middle stays this far inside the track, over both ends
    x = box["x"] + thumb / 2 + index / (stops - 1) * (box["width"] - thumb)
    return x, box["y"] + box["height"] / 2
