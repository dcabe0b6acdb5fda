"""Check the spelling of the prose: British, and in -ise.

    python tools/spelling.py            all of it
    python tools/spelling.py FILE...    these files

A word is right if the dictionary of British English has it (SCOWL's, in tests/vendor;
`tools/vendor.py --checks` fetches it), or `book/words.txt`, the book's own list of
names and terms. That list is kept short: a word that no text uses, or that the
dictionary has already, is a fault too.

Looked at are the pages, the Markdown cells of chapters with the captions and
alternative texts of their figures, README and its like, and docstrings and comments.
Left out are code, formulas, roles, addresses, and names with digits, dots, underscores
or a capital inside.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
import tomllib
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.amsmath import amsmath_plugin
from mdit_py_plugins.colon_fence import colon_fence_plugin
from mdit_py_plugins.deflist import deflist_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.front_matter import front_matter_plugin
from mdit_py_plugins.myst_blocks import myst_block_plugin
from mdit_py_plugins.myst_role import myst_role_plugin
from mdit_py_plugins.substitution import substitution_plugin
from spylls.hunspell import Dictionary
from spylls.hunspell.readers import FileReader, read_aff, read_dic

ROOT = Path(__file__).resolve().parents[1]
DICTIONARY = ROOT / "tests" / "vendor" / "dictionary-en-gb" / "index"
OWN = ROOT / "book" / "words.txt"
PATTERNS = (
    "*.md",
    "_toc.yml",
    "book/**/*.md",
    "book/reference/*.toml",
    "notebooks/*.ipynb",
    "specdec_lib/**/*.py",
    "tools/**/*.py",
    "tests/**/*.py",
    "bench/*.py",
)
# Directives whose title, and whose text, are prose.
TITLED = re.compile(r"(?:prf:\w+|exercise(?:-start)?|admonition)$")
PROSE = re.compile(
    r"(?:prf:\w+|exercise(?:-start)?|solution(?:-start)?|glossary|figure|admonition"
    r"|note|tip|warning|important|dropdown|seealso)$"
)
OPTIONS = re.compile(r"\A(?:\s*:[\w-]+:[^\n]*(?:\n|\Z))+")
LEFT_OUT_OF_DOCSTRINGS = (
    re.compile(r"^[ ]*>>>.*?(?=\n[ ]*\n|\Z)", re.S | re.M),
    re.compile(r"(?<=::)\n\s*\n(?P<in>[ ]+)\S.*?(?=\n(?!(?P=in)|[ ]*\n)|\Z)", re.S),
    re.compile(r":[\w:-]+:`[^`]*`"),
    re.compile(r"(`+)[^`]+?\1"),
    re.compile(r"^[ ]*[\w*]+(?:, [\w*]+)*$", re.M),  # the argument that a text is about
)
NAMES = re.compile(
    r"https?://\S+"
    r"|[\w.-]+@[\w.-]+"
    r"|\b\w+(?:\.\w+)+\b"  # dotted
    r"|U\+\w+|\w*[\d_]\w*"  # with digits or underscores
    r"|(?<![\w-])-{1,2}\w[\w-]*"  # options of a command
    r"|(?<![\w)])[./]\w[\w./-]*"  # paths
    r"|\w+(?==\S)|\w+(?=\()|%\w|\\\w+|&\w+;"
)
WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")


def parser() -> MarkdownIt:
    made = MarkdownIt("commonmark").enable("table")
    for plugin in (
        front_matter_plugin,
        myst_block_plugin,
        myst_role_plugin,
        substitution_plugin,
        colon_fence_plugin,
        deflist_plugin,
        amsmath_plugin,
    ):
        made.use(plugin)
    return made.use(dollarmath_plugin, double_inline=True)


PARSER = parser()


def of_inline(children: Iterable[Token]) -> str:
    """The words of a line or more of Markdown."""
    parts = []
    for child in children:
        if child.type == "text":
            parts.append(child.content)
        elif child.type in ("softbreak", "hardbreak"):
            parts.append("\n")
        elif child.type == "image":
            parts.append(of_inline(child.children or ()))
        else:
            parts.append("" if child.type.endswith(("_open", "_close")) else " … ")
    return "".join(parts)


def markdown(source: str, first: int = 1) -> Iterator[tuple[int, str]]:
    """The prose of a Markdown text, in pieces, each with the line that it begins in."""
    for token in PARSER.parse(source):
        line = first + (token.map[0] if token.map else 0)
        if token.type == "inline":
            yield line, of_inline(token.children or ())
        elif token.type == "html_block":
            without = re.sub(r"<!--.*?-->", " ", token.content, flags=re.S)
            yield line, re.sub(r"<[^>]*>", " ", without)
        elif token.type == "front_matter":
            for found in re.finditer(r"^description:(.*)$", token.content, re.M):
                yield line, found[1]
        elif token.type in ("fence", "colon_fence"):
            directive = re.match(r"\{([\w:-]+)\}\s*(.*)", token.info)
            if directive and PROSE.match(directive[1]):
                if TITLED.match(directive[1]):
                    yield from markdown(directive[2], line)
                options = OPTIONS.match(token.content)
                for found in re.finditer(r":alt:(.*)", options[0] if options else ""):
                    yield line, found[1]
                skipped = options.end() if options else 0
                lines = token.content[:skipped].count("\n")
                yield from markdown(token.content[skipped:], line + 1 + lines)


def docstring(source: str) -> str:
    """A docstring or a comment without its code; all lines stay where they are."""
    for pattern in LEFT_OUT_OF_DOCSTRINGS:
        source = pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), source)
    return source


def python(source: str) -> Iterator[tuple[int, str]]:
    """Docstrings and comments of a module, what it says of errors and of its flags."""
    for node in ast.walk(ast.parse(source)):
        said = [node.exc] if isinstance(node, ast.Raise) else []
        if isinstance(node, ast.keyword) and node.arg in ("help", "description"):
            said.append(node.value)
        for part in (part for tree in said if tree for part in ast.walk(tree)):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.lineno, docstring(part.value)
        if isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ) and (text := ast.get_docstring(node, clean=False)):
            yield node.body[0].lineno, docstring(text)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not re.match(
            r"#!|# (?:noqa|type:|pragma|fmt:)", token.string
        ):
            yield token.start[0], docstring(token.string)


def notebook(source: str) -> Iterator[tuple[str, str]]:
    """Cells of Markdown, and what is said of figures; the place is the cell."""
    for number, cell in enumerate(json.loads(source)["cells"], start=1):
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            for _, piece in markdown(text):
                yield f"cell {number}", piece
        options = cell["metadata"].get("mystnb", {})
        for piece in (
            options.get("image", {}).get("alt", ""),
            options.get("figure", {}).get("caption", ""),
        ):
            for _, words in markdown(piece):
                yield f"cell {number}", words


def toml(value: object) -> Iterator[str]:
    """All texts of a TOML file that are more than a name."""
    if isinstance(value, dict):
        for part in value.values():
            yield from toml(part)
    elif isinstance(value, list):
        for part in value:
            yield from toml(part)
    elif isinstance(value, str) and not value.lstrip().startswith(">>>"):
        yield value


def texts(path: Path) -> Iterator[tuple[str, str]]:
    """The prose of a file: places in it, and what stands there."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        yield from notebook(source)
    elif path.suffix == ".toml":
        for text in toml(tomllib.loads(source)):
            yield "", docstring(text)
    elif path.suffix == ".yml":
        for number, line in enumerate(source.splitlines(), start=1):
            if found := re.match(r"\s*(?:- )?(?:caption|title): (.*)", line):
                yield f"{number}", found[1]
    else:
        pieces = python(source) if path.suffix == ".py" else markdown(source)
        for line, text in pieces:
            for further, part in enumerate(text.split("\n")):
                yield f"{line + further}", part


def words(text: str) -> Iterator[str]:
    """The words of a text; names with a capital inside are none."""
    for found in WORD.finditer(NAMES.sub(" … ", text)):
        word = re.sub(r"['’]s?$|^['’]", "", found[0].replace("’", "'"))
        if len(word) > 1 and not re.search(r"[a-z][A-Z]", word):
            yield word


class Reader(FileReader):
    """A file that is read at once, so that none stays open."""

    def _open(self, path: str, encoding: str) -> io.StringIO:
        return io.StringIO(Path(path).read_text(encoding, errors="surrogateescape"))


def dictionary(path: Path) -> Dictionary:
    """The Hunspell dictionary in `path`.aff and `path`.dic."""
    affixes, context = read_aff(Reader(f"{path}.aff"))
    stems = Reader(f"{path}.dic", encoding=context.encoding)
    return Dictionary(affixes, read_dic(stems, aff=affixes, context=context))


class Speller:
    """Which words are right, and which of the book's own were needed.

    A line of the book's own list is one word, or the name of a file and words that are
    right in this file only.
    """

    def __init__(self, known: Callable[[str], bool], lines: Iterable[str]) -> None:
        self.known = cache(known)
        self.lines = [line for line in lines if line and not line.startswith("#")]
        self.own: dict[str, list[str]] = {}  # of all files ("") and of single ones
        for line in self.lines:
            file, colon, some = line.partition(":")
            self.own.setdefault(file if colon else "", []).extend(
                some.split() if colon else [line]
            )
        self.used: set[tuple[str, str]] = set()

    def is_right(self, word: str, file: str = "") -> bool:
        """Whether a word is spelt as it should be, in the case in which it stands."""
        if self.known(word):
            return True
        # A word of the list may begin a sentence.
        for form in (word, word[0].lower() + word[1:]):
            for where in ("", file):
                if form in self.own.get(where, ()):
                    self.used.add((where, form))
                    return True
        return False

    def faults(self, *, whole: bool) -> Iterator[str]:
        """What is wrong with the list itself; `whole` says that all texts were read."""
        order = sorted(
            self.lines, key=lambda line: (":" in line, line.casefold(), line)
        )
        for line, rightly in zip(self.lines, order, strict=True):
            if line != rightly:
                yield f"is not sorted: {rightly} must stand where {line} does"
                break
        for file, some in self.own.items():
            for word in dict.fromkeys(some):
                if some.count(word) > 1:
                    yield f"{word}: stands there twice"
                if self.known(word):
                    yield f"{word}: the dictionary has it"
                elif whole and (file, word) not in self.used:
                    yield f"{word}: no text uses it"


def files() -> list[Path]:
    return sorted({path for pattern in PATTERNS for path in ROOT.glob(pattern)})


def main(arguments: list[str]) -> int:
    if not DICTIONARY.with_suffix(".dic").exists():
        print(
            "The dictionary is missing: `.venv/bin/python tools/vendor.py --checks` "
            "fetches it.",
            file=sys.stderr,
        )
        return 1
    speller = Speller(
        dictionary(DICTIONARY).lookup,
        OWN.read_text(encoding="utf-8").splitlines(),
    )
    found = 0
    for path in [Path(argument).resolve() for argument in arguments] or files():
        file = path.relative_to(ROOT).as_posix()
        for place, text in texts(path):
            for word in words(text):
                if not speller.is_right(word, file):
                    found += 1
                    print(f"{file}:{place}: {word}")
    for fault in speller.faults(whole=not arguments):
        found += 1
        print(f"{OWN.relative_to(ROOT)}: {fault}")
    if found:
        print(
            "\nMend these, or add a name or a term of the field to "
            f"{OWN.relative_to(ROOT)}."
        )
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
