"""Sliders that work in Jupyter and on the published page, with the same code.

    figure_slider, figure_grid   figures drawn beforehand, one slider or two
    SpeedupExplorer              the closed form of the speedup, computed in the page
    live                         real decoding at each move; this one needs a kernel

They need the extra packages of ``pip install 'specdec_lib[widgets]'``, which are
imported when one of them is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .decoding import live
    from .explorer import SpeedupExplorer
    from .figures import figure_grid, figure_slider

__all__ = ["SpeedupExplorer", "figure_grid", "figure_slider", "live"]

_PLACES = {
    "SpeedupExplorer": "explorer",
    "figure_grid": "figures",
    "figure_slider": "figures",
    "live": "decoding",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_PLACES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
