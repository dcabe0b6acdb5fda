"""The terms of the glossary, and where a text uses them.

`book/glossary.md` has the entries; `book/terms.toml` says in which further forms a term
is found, and on which pages a word of every day means the term.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GLOSSARY = ROOT / "book" / "glossary.md"
TERMS = ROOT / "book" / "terms.toml"
SENTENCE_BEGINS = re.compile(r"(?:^|[.?!:]['\")\]”]*\s+|[“\"(]\s*)\Z")

BOLD = re.compile(r"\*\*([^*\s][^*]*)\*\*")
ROLE = re.compile(r"\{term\}`([^`<]*?)\s*(?:<[^>]*>)?`")


def entries(source: str) -> list[str]:
    """The terms of a glossary directive, in the order in which they stand."""
    (body,) = re.findall(r"^`{3,}\{glossary\}\n(.*?)^`{3,}$", source, re.S | re.M)
    return re.findall(r"^(\S.*)$", body, re.M)


@dataclass(frozen=True)
class Terms:
    """Terms, and the forms in which they are found; a form belongs to one term.

    `only` names, for a term that is a word of every day, the pages where it is meant;
    `not_meant` has phrases in which none is.
    """

    names: tuple[str, ...]
    forms: Mapping[str, Iterable[str]] = field(default_factory=dict)
    only: Mapping[str, Iterable[str]] = field(default_factory=dict)
    not_meant: Iterable[str] = ()

    def __post_init__(self) -> None:
        for table in (self.forms, self.only):
            if unknown := set(table) - set(self.names):
                raise ValueError(
                    f"book/terms.toml names {sorted(unknown)}: no such entry"
                )
        found: dict[str, str] = {}
        for name in self.names:
            for form in (name, *self.forms.get(name, ())):
                if found.setdefault(form, name) != name:
                    raise ValueError(
                        f"{form!r} is a form of {name!r} and {found[form]!r}"
                    )
        found |= dict.fromkeys(self.not_meant, "")
        object.__setattr__(self, "term_of", found)
        # The longest first: "acceptance rate" and not "rate" where both are terms.
        alternatives = "|".join(
            _either_case(form) for form in sorted(found, key=len, reverse=True)
        )
        object.__setattr__(
            self, "pattern", re.compile(rf"(?<![\w-])(?:{alternatives})(?![\w-])")
        )

    term_of: dict[str, str] = field(init=False)
    pattern: re.Pattern[str] = field(init=False)

    def mentions(self, text: str, before: str = "") -> Iterator[tuple[int, int, str]]:
        """Where a text uses which term; `before` stands in front of it.

        Yields start, end and term. Of two forms at one place the longer is meant.
        """
        for found in self.pattern.finditer(text):
            form = " ".join(found[0].replace("’", "'").split())
            if form not in self.term_of:
                if not SENTENCE_BEGINS.search(before + text[: found.start()]):
                    continue
                form = form[0].lower() + form[1:]
            if term := self.term_of[form]:
                yield found.start(), found.end(), term

    def is_meant(self, term: str, page: str) -> bool:
        """Whether a mention on this page is one of the term at all."""
        pages = self.only.get(term)
        return pages is None or page in pages


def _either_case(form: str) -> str:
    first = re.escape(form[0])
    if form[0].islower():
        first = f"[{form[0]}{form[0].upper()}]"
    return first + re.escape(form[1:]).replace(r"\ ", r"\s+").replace("'", "['’]")


@cache
def terms() -> Terms:
    """The terms of the book."""
    table = tomllib.loads(TERMS.read_text(encoding="utf-8"))
    return Terms(
        tuple(entries(GLOSSARY.read_text(encoding="utf-8"))),
        table.get("forms", {}),
        table.get("only", {}),
        table.get("phrases", {}).get("not_meant", ()),
    )


def explained_otherwise() -> dict[str, str]:
    """Words in bold that need no entry, and why."""
    return dict(tomllib.loads(TERMS.read_text(encoding="utf-8"))["in_bold"])


def in_bold(source: str) -> Iterator[str]:
    """One or two words that a Markdown text has in bold, outside of tables.

    Longer ones, and those with a mark at their end, are a stress or a heading.
    """
    for found in BOLD.finditer(re.sub(r"^\|.*$", "", source, flags=re.M)):
        words = ROLE.sub(r"\1", found[1]).split()
        if len(words) <= 2 and not re.search(r"[.:?!$=]$", words[-1]):
            yield " ".join(words)


def named() -> dict[str, str]:
    """Names of methods, and the keys of the sources that gave them."""
    return dict(tomllib.loads(TERMS.read_text(encoding="utf-8"))["named"])
