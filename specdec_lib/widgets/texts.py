"""Sliders over texts decoded beforehand, so that they need no kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import traitlets

from ._base import Sliders, Value, page_script, position, slider

KINDS = ("accepted", "correction", "bonus", "plain")  # as the page's part counts them


class ToldText(NamedTuple):
    """A text and what is said of it.

    prompt
        what stands before it.
    tokens
        (piece, kind) for each token; kinds are "accepted", "correction", "bonus" and
        "plain", the last for a token of a round without guesses.
    summary
        its figures, in a sentence or two.
    """

    prompt: str
    tokens: Sequence[tuple[str, str]]
    summary: str


class Texts(Sliders):
    """Texts for all combinations of the sliders' stops; the last slider runs first.

    texts, runs
        the different texts, and for each combination the place of its text, a digit for
        the kind of each token, and what is said below the sliders.
    """

    _esm = page_script("tokens.js", "texts.js")
    texts = traitlets.List(traitlets.Dict()).tag(sync=True)
    runs = traitlets.List(traitlets.Dict()).tag(sync=True)


def text_grid(
    tell: Callable[[Value, Value], ToldText],
    firsts: Sequence[Value],
    seconds: Sequence[Value],
    *,
    labels: tuple[str, str],
    start: tuple[Value, Value] | None = None,
    show: tuple[Callable[[Value], str], Callable[[Value], str]] = (str, str),
) -> Texts:
    """Two sliders that show ``tell(first, second)``, a text whose tokens are marked.

    tell
        called once for each combination, here and now. A text that several
        combinations share is stored once.
    firsts, seconds
        the stops of the sliders, at least two each; ``start`` is the pair shown first.
    labels, show
        the names of the two sliders, and how a value reads beside each.

    ValueError for another kind of token.
    """
    firsts, seconds = list(firsts), list(seconds)
    first, second = (None, None) if start is None else start
    indices = [
        position("firsts", firsts, first),
        position("seconds", seconds, second),
    ]
    texts: list[dict[str, Any]] = []
    runs = []
    for a, b in product(firsts, seconds):
        prompt, tokens, summary = tell(a, b)
        for _, kind in tokens:
            if kind not in KINDS:
                raise ValueError(
                    f"kinds must be among {', '.join(KINDS)}, got {kind!r}"
                )
        text = {"prompt": prompt, "pieces": [piece for piece, _ in tokens]}
        if text not in texts:
            texts.append(text)
        kinds = "".join(str(KINDS.index(kind)) for _, kind in tokens)
        runs.append({"place": texts.index(text), "kinds": kinds, "summary": summary})
    pairs = zip(labels, (firsts, seconds), show, strict=True)
    return Texts(
        sliders=[slider(label, values, text) for label, values, text in pairs],
        indices=indices,
        texts=texts,
        runs=runs,
    )
