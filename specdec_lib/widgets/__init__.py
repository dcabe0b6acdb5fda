"""Sliders that work in Jupyter and on the published page, with the same code."""

from .figures import figure_slider

__all__ = ["figure_slider"]
