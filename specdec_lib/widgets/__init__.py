"""What moves in Jupyter and on the published page, with the same code.

    figure_slider, figure_grid   figures drawn beforehand, one slider or two
    SpeedupExplorer              the closed form of the speedup, computed in the page
    text_grid                    texts decoded beforehand, two sliders
    gallery                      faulty code, and a figure of what it does, to choose
    live                         real decoding at each move; this one needs a kernel
    coloured_text, token_notes   a text whose tokens tell how they came to be

All but the last need the extra packages of
``pip install 'specdec_lib[widgets]'``, which are imported when one is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .decoding import live
    from .exhibits import Exhibit, gallery
    from .explorer import SpeedupExplorer
    from .figures import figure_grid, figure_slider
    from .texts import ToldText, text_grid
    from .tokens import coloured_text, token_notes

__all__ = [
    "Exhibit",
    "SpeedupExplorer",
    "ToldText",
    "coloured_text",
    "figure_grid",
    "figure_slider",
    "gallery",
    "live",
    "text_grid",
    "token_notes",
]

_PLACES = {
    "Exhibit": "exhibits",
    "SpeedupExplorer": "explorer",
    "ToldText": "texts",
    "coloured_text": "tokens",
    "figure_grid": "figures",
    "figure_slider": "figures",
    "gallery": "exhibits",
    "live": "decoding",
    "text_grid": "texts",
    "token_notes": "tokens",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_PLACES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
