"""The coloured text: its numbers by hand, and what its HTML must have."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import specdec_lib as sd
from specdec_lib.widgets import coloured_text, token_notes
from specdec_lib.widgets.tokens import describe

P = np.array([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.25, 0.25, 0.5]])
Q = np.array([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2]])
GUESSES = sd.Proposal((1, 0), Q)
KEPT_ONE = sd.Round((1, 0), 1, (1, 2))
KEPT_ALL = sd.Round((1, 0), 2, (1, 0, 2))


def pieces(tokens):
    return ["ABC"[t] for t in tokens]


def notes(*rounds):
    return token_notes(rounds, [(P, GUESSES)] * len(rounds), pieces)


def test_numbers_by_hand():
    first, second = notes(KEPT_ONE)
    assert (first.text, first.kind, first.guess) == ("B", "accepted guess", "B")
    assert (first.p, first.q) == (0.3, 0.5)
    assert first.chance == pytest.approx(0.6)
    assert first.overlap == pytest.approx(0.7)
    assert (first.place, first.drafted) == (1, 2)
    assert (second.text, second.kind, second.guess) == ("C", "correction", "A")
    assert (second.p, second.q) == (0.8, 0.2)
    assert (second.guess_p, second.guess_q) == (0.1, 0.4)
    assert second.chance == pytest.approx(0.25)
    assert second.overlap == pytest.approx(0.4)


def test_a_bonus_has_no_guess():
    last = notes(KEPT_ALL)[-1]
    assert (last.text, last.kind, last.p, last.place) == ("C", "bonus", 0.5, 3)
    assert {last.q, last.guess, last.chance, last.overlap} == {None}


def test_what_a_bonus_came_after_is_said_in_words():
    """A draft that copies often has no guess at all: not "0 of 0 were accepted"."""
    heads = []
    for guesses in ((), (1,), (1, 0)):
        every = sd.Round(guesses, len(guesses), (*guesses, 2))
        judged = (P[: len(guesses) + 1], sd.Proposal(guesses))
        heads.append(describe(token_notes([every], [judged], pieces)[-1])[0])
    assert heads == [
        "“C”: bonus token, in a round without a guess",
        "“C”: bonus token, after the only guess was accepted",
        "“C”: bonus token, after 2 of 2 guesses were accepted",
    ]


def test_a_point_mass_is_certain_of_its_guess():
    each = token_notes([KEPT_ONE], [(P, sd.Proposal((1, 0)))], pieces)
    assert (each[0].q, each[0].chance) == (1.0, 0.3)
    assert each[0].overlap == pytest.approx(0.3)
    assert (each[1].q, each[1].guess_q, each[1].chance) == (0.0, 1.0, 0.1)


def test_a_round_cut_by_a_stop_id_has_only_its_own_tokens():
    cut = sd.Round((1, 0), 1, (1,))
    assert [note.kind for note in notes(cut)] == ["accepted guess"]


@pytest.mark.parametrize(
    "judged", [[], [(P, sd.Proposal((0, 0), Q))], [(P[:2], GUESSES)]]
)
def test_judgements_of_other_rounds_are_refused(judged):
    with pytest.raises(ValueError, match="judged"):
        token_notes([KEPT_ONE], judged, pieces)


class Tags(HTMLParser):
    """Opening tags with their attributes; fails on tags that do not close in order."""

    def __init__(self, page):
        super().__init__()
        self.seen, self.open = [], []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_trees_are_refused():
    """A token's place in the text is not its row there."""
    tree = sd.Proposal(GUESSES.tokens, GUESSES.probabilities, (-1,) * 2)
    rows = [(P, tree)]
    with pytest.raises(ValueError, match=r"judged\[0\] must be about a chain .* tree"):
        token_notes([KEPT_ONE], rows, pieces)


def test_html_is_for_keyboard_and_screen_reader():
    page = coloured_text(notes(KEPT_ONE, KEPT_ALL), name="t").html
    seen = Tags(page).seen
    tokens = [a for tag, a in seen if tag == "li" and "tabindex" in a]
    assert len(tokens) == 5
    ids = [a["id"] for _, a in seen if "id" in a]
    assert len(ids) == len(set(ids))
    for token in tokens:
        assert token["tabindex"] == "0"
        assert token["aria-describedby"] in ids
    assert [t["aria-label"] for t in tokens[:2]] == [
        "“B”: accepted guess",
        "“C”: correction",
    ]
    assert "#t-end" in [a.get("href") for _, a in seen]
    assert "t-end" in ids
    assert "<script" not in page
    assert "http" not in page
    assert "url(" not in page


def test_each_kind_has_a_mark_besides_its_colour():
    page = coloured_text(notes(KEPT_ONE, KEPT_ALL), name="t").html
    body = page[page.index("<ol") :]
    lines = re.findall(r"border-bottom:\dpx (\w+) #\w+;[^>]*“.”: ([\w ]+)", body)
    assert {kind: line for line, kind in lines} == {
        "accepted guess": "solid",
        "correction": "dashed",
        "bonus": "double",
    }
    assert re.findall(r"<sup[^>]*>(.)</sup>", body) == ["×", "+"]


def test_the_legend_counts():
    text = coloured_text(notes(KEPT_ONE, KEPT_ALL), name="t")
    for entry in ("accepted guess (3)", "correction (1)", "bonus token (1)"):
        assert entry in text.html
    assert (
        repr(text)
        == "<ColouredText of 5 tokens: 3 accepted guess, 1 correction, 1 bonus>"
    )


def test_what_a_token_holds_is_text_and_not_markup():
    def hostile(tokens):
        return ['<b "x">\n' for _ in tokens]

    each = token_notes([KEPT_ONE], [(P, GUESSES)], hostile)
    page = coloured_text(each, name="t", before="<i>").html
    Tags(page)
    assert "<i>" not in page
    assert '<b "' not in page
    assert "↵<br>" in page


def test_notes_say_the_numbers():
    accepted, correction = map(" ".join, map(describe, notes(KEPT_ONE)))
    for part in ("p = 0.300", "q = 0.500", "min(1, p/q) = 0.600", "TV): 0.700"):
        assert part in accepted
    for part in ("rejected guess “A”", "p = 0.100, q = 0.400", "min(1, p/q) = 0.250"):
        assert part in correction
    assert describe(notes(KEPT_ALL)[-1])[1] == "target p = 0.500"


@pytest.mark.parametrize("name", ["", "1", "a b", 'a"'])
def test_bad_names_are_refused(name):
    with pytest.raises(ValueError, match="name"):
        coloured_text(notes(KEPT_ONE), name=name)


def test_no_tokens_are_refused():
    with pytest.raises(ValueError, match="notes"):
        coloured_text([], name="t")
