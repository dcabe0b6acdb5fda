"""The gallery of faults of chapter 5, on the built page, where no Python runs."""

from __future__ import annotations

import importlib
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import numpy as np
import planted_faults
import pytest
from site_kit import Visit, check_no_scroll, check_within

import specdec_lib as sd

pytestmark = pytest.mark.browser

PAGE = "notebooks/05_exact_sampling.html"
LABEL = "Fault"
CATALOGUE = {fault.name: fault for fault in planted_faults.catalogue()}
HARMLESS = "The draft told all but the last token"
ONE_UNIFORM = "One uniform for all decisions"  # of the seeded source, not of a path


class Choice:
    """The list, the two versions of the code, the figure and its caption."""

    def __init__(self, visit: Visit) -> None:
        self.page = visit.page
        self.list = self.page.get_by_role("combobox", name=LABEL, exact=True)
        self.box = self.page.locator(".specdec-widget").filter(has=self.list)
        self.box.wait_for(timeout=10_000)
        self.box.scroll_into_view_if_needed()
        self.names = self.list.locator("option").all_inner_texts()
        # The same element all the time: a new one would not be read out.
        self.caption_element = self.box.locator("figcaption").element_handle()
        assert self.caption_element.get_attribute("aria-live") == "polite"

    @property
    def chosen(self) -> str:
        return self.names[int(self.list.evaluate("list => list.selectedIndex"))]

    def caption(self) -> str:
        text = str(self.caption_element.inner_text())
        svg = self.box.locator("svg")
        assert svg.count() == 1
        assert svg.get_attribute("role") == "img"
        assert svg.get_attribute("aria-label") == text
        return text

    def code(self, name: str) -> str:
        group = self.box.get_by_role("group", name=name, exact=True)
        return str(group.locator("code").text_content())

    def marked(self, name: str) -> str:
        group = self.box.get_by_role("group", name=name, exact=True)
        return "".join(group.locator("mark").all_text_contents())

    def everywhere(self) -> Iterator[str]:
        """Choose each fault in turn by the arrow keys; the focus is set once."""
        self.list.focus()
        self.page.keyboard.press("Home")
        for name in self.names:
            assert self.chosen == name
            yield name
            self.page.keyboard.press("ArrowDown")


@pytest.fixture
def choice(fresh: Visit) -> Choice:
    return Choice(fresh)


def test_the_faults_are_those_of_the_catalogue(choice: Choice) -> None:
    assert len(choice.names) == len(set(choice.names)) >= 8
    assert set(choice.names) <= CATALOGUE.keys()
    assert list(choice.everywhere()) == choice.names


def around(source: str, fragment: str) -> str:
    """The whole lines of a fragment of a source, without their indent."""
    start = source.rindex("\n", 0, source.index(fragment)) + 1
    end = source.index("\n", source.index(fragment) + len(fragment))
    return textwrap.dedent(source[start:end])


def test_each_shows_its_lines_and_a_figure_of_its_own(choice: Choice) -> None:
    captions, drawings = set(), set()
    for name in choice.everywhere():
        fault = CATALOGUE[name]
        source = planted_faults.source_of(fault)
        assert choice.code("The library") == around(source, fault.old)
        planted = fault.planted(source)
        assert choice.code("With the fault") == around(planted, fault.new)
        assert choice.marked("The library") + choice.marked("With the fault")
        caption = choice.caption()
        assert caption.startswith(f"{name}. ")
        captions.add(caption)
        drawings.add(choice.box.locator("svg").inner_html())
    assert len(captions) == len(choice.names)
    # Two have the same law: what is wrong with them is one and the same.
    assert len(drawings) == len(choice.names) - 1


def toy(seed: int) -> Any:
    table = 1.5 * np.random.default_rng(seed).normal(size=(3, 3, 3))
    return sd.FunctionModel(lambda s: table[(0, *s)[-2], s[-1]], 3)


def bias(name: str) -> tuple[float, float]:
    """Total variation of three tokens with the catalogue's fault, and their least n."""
    fault, cold = CATALOGUE[name], sd.Sampler(temperature=0.7)
    module = importlib.import_module(fault.file[:-3].replace("/", "."))
    names = dict(vars(module))
    exec(fault.planted(planted_faults.source_of(fault)), names)
    library = vars(sd) | names
    target, draft = toy(1), library["ModelDraft"](toy(2), cold)
    options = {"max_new_tokens": 3, "sampler": cold}

    def law(generate: Any, **more: Any) -> Any:
        return sd.exact_distribution(
            lambda rng: generate(target, (0, 1), rng=rng, **options, **more).tokens
        )

    plain = law(sd.generate)
    verify = library["verify_tokens"]
    found = law(library["generate"], draft=draft, k=2, verify=verify)
    texts = sorted(plain)
    p, ell = (np.array([each.get(t, 0) for t in texts]) for each in (plain, found))
    off = np.abs(ell - p).sum() / 2
    if off < 1e-12:
        return off, np.inf
    score = np.log(ell / p)
    spread = [np.sqrt(w @ score**2 - (w @ score) ** 2) for w in (p, ell)]
    gap = (ell - p) @ score
    return off, ((3.090 * spread[0] + 1.645 * spread[1]) / gap) ** 2


def test_figures_are_those_of_the_planted_library(choice: Choice) -> None:
    for name in choice.everywhere():
        caption = choice.caption()
        if name != ONE_UNIFORM:
            off, n = bias(name)
            said = re.search(r"Total variation (\d\.\d{4})", caption)
            assert said is not None
            assert float(said[1]) == pytest.approx(off, abs=5.1e-5)
            takes = re.search(r"It takes ([\d,]+) samples", caption)
            assert (takes is None) == (name == HARMLESS)
            if takes is not None:
                assert n <= int(takes[1].replace(",", "")) < n + 1 + 1e-6


def test_the_mouse_chooses_too(choice: Choice) -> None:
    choice.list.select_option(label="Always accept")
    assert choice.caption().startswith("Always accept. ")
    assert choice.code("With the fault") == "if not rng.bernoulli(1.0):"


def test_it_fits_a_telephone(telephone: Visit) -> None:
    choice = Choice(telephone)
    choice.list.select_option(label=ONE_UNIFORM)
    for element in (choice.list, choice.box.locator("svg")):
        check_within(element)
    for code in choice.box.locator("pre").all():
        check_within(code)
        assert code.evaluate("pre => pre.scrollWidth <= pre.clientWidth")
    check_no_scroll(telephone.page)
