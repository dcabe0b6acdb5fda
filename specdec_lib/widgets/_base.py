"""What all widgets share: their part that runs in the page, and their sliders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import traitlets

try:
    import anywidget
except ImportError as error:
    raise ImportError(
        "the widgets need anywidget: pip install 'specdec_lib[widgets]'"
    ) from error

Value = Any


def page_script(*names: str) -> str:
    """The ES module of a widget: what all share, then these files of its own."""
    return "\n".join(page_file(name) for name in ("controls.js", *names))


def page_file(name: str) -> str:
    return (Path(__file__).parent / "page" / name).read_text(encoding="utf-8")


def slider(
    label: str, stops: Sequence[Value], show: Callable[[Value], str], **more: Any
) -> dict[str, Any]:
    """A slider as the page's part reads it: its name, and the text at each stop."""
    return {"label": label, "texts": [show(stop) for stop in stops], **more}


def position(name: str, values: Sequence[Value], start: Value | None) -> int:
    """Where ``start`` stands among ``values``; 0 where it is None."""
    if len(values) < 2:
        raise ValueError(f"{name} must be at least two, got {len(values)}")
    if start is None:
        return 0
    if start not in values:
        raise ValueError(
            f"start must be one of {name}, {_listed(values)}, got {start!r}"
        )
    return list(values).index(start)


def _listed(values: Sequence[Value]) -> str:
    if len(values) <= 12:
        return ", ".join(map(repr, values))
    return f"{values[0]!r}, {values[1]!r} .. {values[-1]!r}"


class Sliders(anywidget.AnyWidget):
    """Sliders over fixed stops, drawn and read in the page.

    sliders
        one dict each: ``label``, and ``texts``, what is shown at each stop.
    indices
        where each slider stands. Setting it moves them.
    """

    _esm = "export default {}"
    _css = page_file("widgets.css")
    sliders = traitlets.List(traitlets.Dict()).tag(sync=True)
    indices = traitlets.List(traitlets.Int()).tag(sync=True)

    @traitlets.validate("indices")
    def _inside(self, proposal: Any) -> list[int]:
        indices = list(proposal["value"])
        sizes = [len(slider["texts"]) for slider in self.sliders]
        if len(indices) != len(sizes) or not all(
            0 <= index < size for index, size in zip(indices, sizes, strict=True)
        ):
            raise ValueError(
                f"indices must be {len(sizes)} places below {sizes}, got {indices}"
            )
        return indices

    def __repr__(self) -> str:
        """The same in every run, so that a chapter can store it."""
        names = ", ".join(
            f"{slider['label']}: {slider['texts'][index]}"
            for slider, index in zip(self.sliders, self.indices, strict=True)
        )
        return f"<{type(self).__name__} {names}>"
