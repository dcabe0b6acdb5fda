"""The gallery of faulty code: what it holds, before any page shows it."""

import re

import matplotlib.pyplot as plt
import pytest

from specdec_lib.widgets import Exhibit, gallery

FAULTS = {"swapped": ("p / q", "q / p"), "| left out": ("a | b", "a")}


def tell(name):
    right, wrong = FAULTS[name]
    fig, ax = plt.subplots(figsize=(2, 1.5))
    ax.bar([0, 1], [len(right), len(wrong)])
    return Exhibit(right, wrong, fig, f'{name}: "{right}" < "{wrong}"')


def test_one_exhibit_for_each_fault():
    widget = gallery(tell, FAULTS, label="Fault", start="| left out")
    assert widget.sliders == [{"label": "Fault", "texts": list(FAULTS)}]
    assert widget.indices == [1]
    assert widget.codes == [list(codes) for codes in FAULTS.values()]
    texts = [f'{name}: "{a}" < "{b}"' for name, (a, b) in FAULTS.items()]
    assert widget.descriptions == texts
    for figure, text in zip(widget.figures, texts, strict=True):
        named = text.replace('"', "&quot;").replace("<", "&lt;")
        assert figure.startswith(f'<svg role="img" aria-label="{named}"')
    assert plt.get_fignums() == []
    assert repr(widget) == "<Gallery Fault: | left out>"


def test_names_may_read_otherwise():
    widget = gallery(tell, list(FAULTS), label="Fault", show=str.upper)
    assert widget.sliders[0]["texts"] == ["SWAPPED", "| LEFT OUT"]
    assert widget.indices == [0]


def test_all_that_the_page_needs_is_in_the_state():
    """No kernel's callback moves it: the page has no kernel."""
    state = gallery(tell, FAULTS, label="Fault").get_state()
    assert {"sliders", "indices", "codes", "figures", "descriptions"} <= set(state)
    assert "export default" in state["_esm"]
    assert not re.search(r"^\s*import\b|\bimport\(", state["_esm"], re.M)
    assert ".specdec-widget" in state["_css"]
    assert ".specdec-choice" in state["_css"]
    assert not re.search(r"https?://|url\(", state["_css"])


def test_bad_choices():
    with pytest.raises(ValueError, match="values must be at least two, got 1"):
        gallery(tell, ["swapped"], label="Fault")
    with pytest.raises(ValueError, match="start must be one of values"):
        gallery(tell, FAULTS, label="Fault", start="third")
    widget = gallery(tell, FAULTS, label="Fault")
    with pytest.raises(ValueError, match="indices must be 1 places"):
        widget.indices = [2]
