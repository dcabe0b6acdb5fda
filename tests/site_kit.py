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
