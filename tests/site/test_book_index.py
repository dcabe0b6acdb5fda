"""The index has all that the book defines, and leads there."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import glossary
import pytest
import yaml
from bs4 import BeautifulSoup, Tag

import specdec_lib

ROOT = Path(__file__).resolve().parents[2]
PAGE = "book/subject_index.html"
CHAPTERS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@cache
def soup(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def entries(site: Path, part: str) -> dict[str, list[str]]:
    """The lines of a list, and where each leads."""
    lines = soup(site / PAGE).select(f"ul.sd-{part} > li")
    found = {}
    for line in lines:
        text = line.get_text().replace("’", "'")
        name = text.rpartition(": ")[0] if part == "subjects" else text
        assert name not in found
        found[name.strip()] = [str(link["href"]) for link in line.find_all("a")]
    return found


def ends(site: Path, links: list[str]) -> list[tuple[str, Tag]]:
    """Of each link: the page, and the element that it leads to."""
    found = []
    for link in links:
        page = (site / PAGE).parent / urlsplit(link).path
        (element,) = soup(page.resolve()).find_all(id=urlsplit(link).fragment) or [None]
        assert isinstance(element, Tag), link
        found.append((page.resolve().relative_to(site.resolve()).as_posix(), element))
    return found


def prose(path: Path) -> str:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(
        "".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"
    )


def test_every_term_leads_to_its_entry(site: Path) -> None:
    subjects = entries(site, "subjects")
    for term in glossary.entries(glossary.GLOSSARY.read_text(encoding="utf-8")):
        page, element = ends(site, subjects[term])[0]
        assert page == "book/glossary.html"
        assert element.get_text().strip().replace("’", "'").startswith(term)


def test_terms_lead_to_the_chapter_that_introduces_them(site: Path) -> None:
    subjects = entries(site, "subjects")
    for term, chapter in {
        "acceptance rate": "04_guess_then_check",
        "perplexity": "01_counting_words",
        "suffix automaton": "10_copying_from_the_prompt",
        "Little's law": "16_an_engine_behind_http",
        "residual distribution": "05_exact_sampling",
    }.items():
        pages = [page for page, _ in ends(site, subjects[term])]
        assert f"notebooks/{chapter}.html" in pages, term


def test_every_theorem_and_definition_leads_to_itself(site: Path) -> None:
    subjects = entries(site, "subjects")
    titled = re.compile(r"^`{3,}\{prf:(?!proof)(\w+)\}[ \t]*(\S.*)$", re.M)
    count = 0
    for path in CHAPTERS:
        for kind, title in titled.findall(prose(path)):
            count += 1
            ((page, element),) = ends(site, subjects[f"{title} ({kind})"])
            assert page == f"notebooks/{path.stem}.html"
            assert {"proof", kind} <= set(element["class"])
            assert title in element.get_text()
    assert count > 10


def test_every_source_leads_to_the_chapters_that_cite_it(site: Path) -> None:
    subjects = entries(site, "subjects")
    listed = {
        tuple(page for page, _ in ends(site, links)) for links in subjects.values()
    }
    cited: dict[str, list[str]] = {}
    for path in CHAPTERS:
        for keys in re.findall(r"\{cite:\w+\}`([^`]+)`", prose(path)):
            for key in keys.split(","):
                pages = cited.setdefault(key.strip(), [])
                if f"notebooks/{path.stem}.html" not in pages:
                    pages.append(f"notebooks/{path.stem}.html")
    assert len(cited) > 30
    for key, pages in cited.items():
        assert any(
            set(pages) <= set(places) and places[-1] == "book/bibliography.html"
            for places in listed
        ), key
    assert "Leviathan, Kalman and Matias 2023" in subjects
    assert any(name.startswith("Medusa (Cai") for name in subjects)


def test_commands_and_names_and_flags(site: Path) -> None:
    assert "specdec generate" in entries(site, "subjects")
    names = entries(site, "names")
    for name in specdec_lib.__all__:
        listed = rf"(?:specdec_lib\.)?{re.escape(name)}(?: in |$)"
        assert any(re.match(listed, line) for line in names), name
    flags = entries(site, "flags")
    assert "--temperature in specdec generate" in flags
    assert "--breaker-seconds in specdec serve" in flags
    assert "--breaker-seconds in specdec generate" not in flags
    for part in (names, flags):
        for line, links in part.items():
            ((page, _),) = ends(site, links)
            assert page.startswith("book/reference/"), line


def test_the_lines_are_sorted_and_under_their_letters(site: Path) -> None:
    for part in ("subjects", "names", "flags"):
        for section in soup(site / PAGE).select("section section section"):
            if not re.fullmatch(rf"{part}-(.)", str(section["id"])):
                continue
            letter = str(section["id"])[-1]
            lines = [
                re.sub(r"[^\w ]", "", li.get_text().strip().lstrip("-_")).casefold()
                for li in section.select("li")
            ]
            if letter != "#":
                assert {line[0].upper() for line in lines} == {letter}
            if part == "subjects":
                lines = [
                    re.sub(r"[^\w ]", "", li.get_text().rpartition(": ")[0]).casefold()
                    for li in section.select("li")
                ]
                assert lines == sorted(lines)


def test_the_contents_lead_to_the_index(site: Path) -> None:
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    (reference,) = [part for part in toc["parts"] if part["caption"] == "Reference"]
    assert {"file": "book/subject_index"} in reference["chapters"]
    links = soup(site / "notebooks/01_counting_words.html").select("nav a")
    assert any(str(link.get("href", "")).endswith(PAGE) for link in links)


def test_the_index_is_no_result_of_a_search(site: Path) -> None:
    source = (site / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(source[source.index("{") : source.rindex("}") + 1])
    number = index["docnames"].index(PAGE.removesuffix(".html"))
    for word in ("perplex", "leviathan", "medusa"):
        places = index["terms"].get(word, [])
        assert number not in (places if isinstance(places, list) else [places]), word


@pytest.mark.browser
def test_the_lists_have_columns_where_there_is_room(open_page, site: Path) -> None:
    from site_kit import NARROW, WIDE, check_no_scroll

    for viewport, columns in ((WIDE, {2, 3}), (NARROW, {1})):
        visit = open_page(PAGE, viewport)
        lefts = visit.page.evaluate(
            """() => [...document.querySelectorAll("#subjects-C li")].map(
                (line) => Math.round(line.getBoundingClientRect().left))"""
        )
        assert len(set(lefts)) in columns
        check_no_scroll(visit.page)
        visit.check_quiet()
        visit.page.close()
