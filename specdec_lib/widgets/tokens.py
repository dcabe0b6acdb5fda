"""A text whose tokens say where they came from: plain HTML, with no script.

Hovering, tapping or focusing a token shows its numbers. It works on the published
page, where no Python runs, in JupyterLab, by keyboard and with a screen reader, and
needs nothing but the standard library and NumPy.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..drafts import Proposal
from ..metrics import Round
from ..theory import acceptance

ACCEPTED, CORRECTION, BONUS = "accepted guess", "correction", "bonus"

# Each kind: the sign that stands before the token, its line, and its ground.
_KINDS = {
    ACCEPTED: ("", "3px solid #009e73", "#009e7326"),
    CORRECTION: ("×", "3px dashed #d55e00", "#d55e0026"),
    BONUS: ("+", "4px double #0072b2", "#0072b233"),
}


class TokenNote(NamedTuple):
    """One emitted token, and how it came to be.

    text, kind
        the token, and ``"accepted guess"``, ``"correction"`` or ``"bonus"``.
    place, drafted
        its place in the round, from 1, and how many guesses the round had.
    p, q
        what target and draft gave to this token; q is None for a bonus.
    guess, guess_p, guess_q
        the guess that was judged here: the token itself where it was accepted, the
        rejected one for a correction, None for a bonus.
    chance
        min(1, guess_p / guess_q): the chance that this very guess is accepted.
    overlap
        1 - TV(p, q): the chance that a guess is accepted here, before it is drawn.
    """

    text: str
    kind: str
    place: int
    drafted: int
    p: float
    q: float | None = None
    guess: str | None = None
    guess_p: float | None = None
    guess_q: float | None = None
    chance: float | None = None
    overlap: float | None = None


def token_notes(
    rounds: Sequence[Round],
    judged: Sequence[tuple[ArrayLike, Proposal]],
    pieces: Callable[[Sequence[int]], Sequence[str]],
) -> list[TokenNote]:
    """A note for each token that ``rounds`` emitted, in the order of the text.

    rounds
        of one run of :func:`specdec_lib.generate` with the token rule: the chances
        noted are that rule's.
    judged
        for each round, what the acceptance rule was given: the target's probabilities
        ``(n + 1, V)`` and the proposal.
    pieces
        tokens -> one string for each, as ``Tokenizer.pieces``.

    Raises ValueError where ``judged`` does not belong to ``rounds``, and for guesses
    that are a tree.
    """
    if len(rounds) != len(judged):
        raise ValueError(
            f"judged must have one entry for each of {len(rounds)} rounds, "
            f"got {len(judged)}"
        )
    notes = []
    pairs = zip(rounds, judged, strict=True)
    for index, (each, (rows, proposal)) in enumerate(pairs):
        p = np.asarray(rows, dtype=np.float64)
        n = len(each.drafted)
        if proposal.parents is not None:
            raise ValueError(
                f"judged[{index}] must be about a chain of guesses, got a tree"
            )
        if tuple(proposal.tokens) != tuple(each.drafted) or len(p) != n + 1:
            raise ValueError(
                f"judged[{index}] must be about the {n} guesses of its round, got "
                f"{len(proposal.tokens)} guesses and {len(p)} rows"
            )
        for i, (token, text) in enumerate(
            zip(each.emitted, pieces(each.emitted), strict=True)
        ):
            here = float(p[i, token])
            if i == n:
                notes.append(TokenNote(text, BONUS, i + 1, n, here))
                continue
            guess = int(each.drafted[i])
            if proposal.probabilities is None:  # a point mass on the guess
                q = np.zeros_like(p[i])
                q[guess] = 1.0
            else:
                q = np.asarray(proposal.probabilities[i], dtype=np.float64)
            notes.append(
                TokenNote(
                    text,
                    ACCEPTED if i < each.accepted else CORRECTION,
                    i + 1,
                    n,
                    here,
                    float(q[token]),
                    pieces([guess])[0],
                    float(p[i, guess]),
                    float(q[guess]),
                    float(min(1.0, p[i, guess] / q[guess])),
                    acceptance(p[i], q),
                )
            )
    return notes


@dataclass(frozen=True)
class ColouredText:
    """What :func:`coloured_text` returns; Jupyter shows it as HTML."""

    notes: tuple[TokenNote, ...]
    html: str

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        counts = ", ".join(f"{_count(self.notes, kind)} {kind}" for kind in _KINDS)
        return f"<ColouredText of {len(self.notes)} tokens: {counts}>"


def coloured_text(
    notes: Sequence[TokenNote], *, name: str, before: str = "", label: str = "The text"
) -> ColouredText:
    """The text of ``notes`` with each token marked as guess, correction or bonus.

    notes
        from :func:`token_notes`; at least one.
    name
        a name that no other coloured text of the page has: letters, digits, hyphens.
    before
        the prompt, shown unmarked before the text.
    label
        what a screen reader calls the list of tokens.

    Raises ValueError for no notes or another sort of name.
    """
    if not notes:
        raise ValueError("notes must hold at least one token, got none")
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]*", name):
        raise ValueError(f"name must be letters, digits and hyphens, got {name!r}")
    items = "".join(_item(note, f"{name}-{i}") for i, note in enumerate(notes))
    legend = "".join(
        f'<li style="{_mark(kind)}">{_sign(kind)}{kind}'
        f"{' token' if kind == BONUS else ''} ({_count(notes, kind)})</li>"
        for kind in _KINDS
    )
    page = (
        f'<div class="sd-ct" id="{name}"><style>{_STYLE}</style>'
        f'<ul class="sd-ct-legend" role="list" style="{_BARE}" aria-label="Legend">'
        f"{legend}</ul>"
        f'<a class="sd-ct-skip" href="#{name}-end">Skip the {len(notes)} tokens</a>'
        f'<div class="sd-ct-text"><span class="sd-ct-before">{_shown(before)}</span>'
        f'<ol role="list" style="{_BARE}" '
        f'aria-label="{html.escape(label)}, token by token">'
        f'{items}</ol></div><p class="sd-ct-hint">Point at a token, tap it, or go from '
        f"one to the next with the Tab key: its numbers stand here.</p></div>"
        f'<span id="{name}-end"></span>'
    )
    return ColouredText(tuple(notes), page)


def describe(note: TokenNote) -> list[str]:
    """What the page says of a token, in parts.

    >>> note = TokenNote("a", "accepted guess", 1, 2, 0.2, 0.5, "a", 0.2, 0.5, 0.4, 0.7)
    >>> describe(note)[0]
    '“a”: accepted guess, place 1 of 2'
    """
    token = _quoted(note.text)
    if note.kind == BONUS:
        n = note.drafted
        why = {
            0: "in a round without a guess",
            1: "after the only guess was accepted",
        }.get(n, f"after {n} of {n} guesses were accepted")
        return [f"{token}: bonus token, {why}", f"target p = {number(note.p)}"]
    place = f"place {note.place} of {note.drafted}"
    own = [f"target p = {number(note.p)}", f"draft q = {number(note.q)}"]
    chance = f"chance of acceptance, min(1, p/q) = {number(note.chance)}"
    any_guess = f"of any guess here (1 − TV): {number(note.overlap)}"
    if note.kind == ACCEPTED:
        return [
            f"{token}: accepted guess, {place}",
            *own,
            chance,
            any_guess,
        ]
    guess = _quoted(note.guess or "")
    return [
        f"{token}: correction, {place}, for the rejected guess {guess}",
        *own,
        f"the guess: p = {number(note.guess_p)}, q = {number(note.guess_q)}",
        f"its {chance}",
        any_guess,
    ]


def number(x: float | None) -> str:
    """Three decimals, or two figures where that would leave too little.

    >>> number(0.25), number(0.00123), number(0)
    ('0.250', '0.0012', '0.000')
    """
    if x is None:
        return "none"
    return f"{x:.3f}" if x >= 0.01 or x == 0 else f"{x:.2g}"


def _count(notes: Sequence[TokenNote], kind: str) -> int:
    return sum(note.kind == kind for note in notes)


def _quoted(text: str) -> str:
    text = text.replace("\n", "↵")
    return f"“{text.strip() or '␣'}”"


def _shown(text: str) -> str:
    return html.escape(text).replace("\n", "↵<br>")


def _sign(kind: str) -> str:
    sign = _KINDS[kind][0]
    return f'<sup aria-hidden="true">{sign}</sup>' if sign else ""


def _mark(kind: str) -> str:
    _, line, ground = _KINDS[kind]
    return f"display:inline;border-bottom:{line};background:{ground}"


def _signed(text: str, kind: str) -> str:
    """The token with its sign, which stays on one line with the word it begins."""
    word = text.lstrip(" ")
    return " " * (len(text) - len(word)) + _sign(kind) + _shown(word)


def _item(note: TokenNote, name: str) -> str:
    head, *parts = describe(note)
    rest = "".join(f"<span>{html.escape(part)}</span>" for part in parts)
    spoken = html.escape(f"{_quoted(note.text)}: {note.kind}", quote=True)
    return (
        f'<li tabindex="0" style="{_mark(note.kind)}" aria-label="{spoken}" '
        f'aria-describedby="{name}">{_signed(note.text, note.kind)}'
        f'<span class="sd-ct-note" id="{name}" style="display:none">'
        f"<b>{html.escape(head)}</b>{rest}</span></li>"
    )


# Written at the elements, because JupyterLab drops style sheets (and more) from outputs
# that were not made on the same machine: such a text keeps its marks, without notes.
_BARE = "list-style:none;display:inline;margin:0;padding:0"

# Colours are those of plots.py; ground and ink are taken from the page together, so
# that they fit each other in light and in dark. Grounds of tokens are see-through.
# The margin scrolls the notes, below the text, into view with a focused token.
_STYLE = re.sub(
    r"\s*\n\s*",
    "",
    """
    .sd-ct{position:relative;padding:.6em .8em 9.6em;border-radius:6px;
    border:1px solid #8888;line-height:2;overflow-wrap:anywhere;
    background:var(--pst-color-background,var(--jp-layout-color0,#fff));
    color:var(--pst-color-text-base,var(--jp-ui-font-color0,#222));}
    .sd-ct li{margin:0;padding:.1em 0}
    .sd-ct ol li{white-space:pre-wrap;cursor:help;
    scroll-margin:4em 0 min(30em,60vh)}
    .sd-ct ul.sd-ct-legend{display:flex!important;flex-wrap:wrap;gap:.1em 1.2em;
    margin-bottom:.5em!important;font-size:.9em}
    .sd-ct .sd-ct-legend li{padding:0 .2em}
    .sd-ct .sd-ct-before{white-space:pre-wrap;opacity:.85}
    .sd-ct sup{font-size:.7em;font-weight:bold;line-height:0}
    .sd-ct ol li:hover,.sd-ct ol li:focus{outline:2px solid currentColor;
    outline-offset:1px;border-radius:2px}
    .sd-ct .sd-ct-note{position:absolute;left:0;right:0;bottom:0;
    z-index:1;min-height:9.6em;box-sizing:border-box;padding:.5em .8em;
    white-space:normal;
    font-size:.9em;line-height:1.5;border-top:1px solid #8888;border-radius:0 0 6px 6px;
    background:var(--pst-color-surface,var(--jp-layout-color2,#f3f4f5));
    color:inherit;cursor:auto}
    .sd-ct .sd-ct-note b,.sd-ct .sd-ct-note span{display:block}
    .sd-ct li:focus .sd-ct-note,.sd-ct li:hover .sd-ct-note{display:block!important}
    .sd-ct li:hover .sd-ct-note{z-index:2}
    .sd-ct .sd-ct-hint{position:absolute;left:0;right:0;bottom:0;margin:0;
    padding:.5em .8em;box-sizing:border-box;min-height:9.6em;font-size:.9em;
    line-height:1.5;border-top:1px solid #8888}
    .sd-ct .sd-ct-skip{position:absolute;clip-path:inset(50%);width:1px;height:1px;
    overflow:hidden;white-space:nowrap}
    .sd-ct .sd-ct-skip:focus{position:static;clip-path:none;width:auto;height:auto;
    display:block}
    @media (max-width:480px){.sd-ct{padding-bottom:13em}
    .sd-ct .sd-ct-note,.sd-ct .sd-ct-hint{min-height:13.4em}}
    """,
).strip()
