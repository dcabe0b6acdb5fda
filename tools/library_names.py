"""The public names of the library, read from its source; and where chapters use them.

Nothing is imported: what is found is the same whatever is installed. The reference
pages are made of this (tools/sphinx_ext/library_reference.py).
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = "specdec_lib"
PACKAGE = ROOT / LIBRARY

# What stands on no page, and why.
LEFT_OUT = {
    f"{LIBRARY}.__main__": "it only calls the command line",
    f"{LIBRARY}.cli": "its flags are on the page of the command line",
    f"{LIBRARY}.bench.command": "its flags are on the page of the command line",
    f"{LIBRARY}.exercises.command": "its flags are on the page of the command line",
    f"{LIBRARY}.llama.command": "its flags are on the page of the command line",
    f"{LIBRARY}.scale.command": "its flags are on the page of the command line",
    f"{LIBRARY}.service.command": "its flags are on the page of the command line",
}
# The modules of packages that have a place of their own. What is public in the others
# is named by their package's __all__; the rest is how the package does it.
OPEN = {
    f"{LIBRARY}.bench": ("figure",),
    f"{LIBRARY}.drafts": (),
    f"{LIBRARY}.exercises": ("file",),
    f"{LIBRARY}.llama": (
        *("gguf_file", "quantised", "reading", "linear", "kernel", "forward"),
        *("tokenizer", "fetch", "answers", "targets"),
    ),
    f"{LIBRARY}.scale": ("setups",),
    f"{LIBRARY}.service": (
        *("app", "settings", "models", "hooks", "calls", "jobs", "breakers"),
        *("metrics", "tracing", "logs", "process", "load"),
    ),
    f"{LIBRARY}.verification": ("lossy",),
    f"{LIBRARY}.widgets": (),
}
# What these take or give back without naming it.
BESIDE = {
    f"{LIBRARY}.drafts": ("Chance", "largest_probability"),
    f"{LIBRARY}.widgets": ("ColouredText", "LiveDecoding", "TokenNote"),
}

Definition = ast.FunctionDef | ast.ClassDef
# Classes of which readers are given objects and make none: they are shown without the
# arguments of their making.
GIVEN = {
    *("TextStream", "LiveDecoding", "LlamaState", "Started"),
    *("HuggingFaceState", "HuggingFaceTreeState", "NGramSession", "ColouredText"),
}
# Constants without a comment of their own that chapters use.
IN_CHAPTERS = {"DRAFT", "HELD_OUT", "NEUTRAL", "OTHER", "STYLE", "TARGET"}


@dataclass(frozen=True)
class Entry:
    """One public name.

    name, home
        the name, and the module under which the reference has it.
    node
        its definition or assignment.
    source
        the module in whose file that stands.
    """

    name: str
    home: str
    node: ast.stmt
    source: str

    @property
    def full_name(self) -> str:
        return f"{self.home}.{self.name}"

    @property
    def kind(self) -> str:
        kinds = {ast.FunctionDef: "function", ast.ClassDef: "class"}
        return kinds.get(type(self.node), "data")

    @property
    def doc(self) -> str:
        if isinstance(self.node, Definition):
            return ast.get_docstring(self.node) or ""
        return comment(self.source, self.node)


@dataclass(frozen=True)
class Module:
    """One module of the library, with the entries that have their home in it."""

    name: str
    doc: str
    entries: tuple[Entry, ...] = ()
    elsewhere: tuple[Entry, ...] = ()  # in its __all__, but at home in another module

    @property
    def summary(self) -> str:
        return summary(self.doc)


def summary(doc: str) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join(doc.split("\n\n")[0].split())


@dataclass(frozen=True)
class Source:
    """What stands in the file of one module."""

    name: str
    path: Path
    text: str
    tree: ast.Module
    defined: dict[str, ast.stmt] = field(default_factory=dict)
    imported: dict[str, str] = field(default_factory=dict)  # local name: full name
    listed: tuple[str, ...] | None = None  # its __all__

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Those of a module, also under `if` and `try`."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try):
            yield from _statements(node.body)
            yield from _statements(node.orelse)
            for handler in getattr(node, "handlers", []):
                yield from _statements(handler.body)


def _read(path: Path) -> Source:
    parts = path.relative_to(ROOT).with_suffix("").parts
    package = parts[:-1]
    name = ".".join(package if parts[-1] == "__init__" else parts)
    text = path.read_text(encoding="utf-8")
    source = Source(name, path, text, ast.parse(text))
    listed = None
    for node in _statements(source.tree.body):
        if isinstance(node, Definition):
            source.defined.setdefault(node.name, node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            if node.value is None:
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    source.defined.setdefault(target.id, node)
                    if target.id == "__all__" and node.value:
                        listed = tuple(ast.literal_eval(node.value))
        elif isinstance(node, ast.Import):
            for each in node.names:
                source.imported[each.asname or each.name] = each.name
        elif isinstance(node, ast.ImportFrom):
            above = ".".join(package[: len(package) - node.level + 1])
            base = [above] if node.level else []
            base += [node.module] if node.module else []
            for each in node.names:
                full = ".".join([*base, each.name])
                source.imported[each.asname or each.name] = full
    return Source(**{**source.__dict__, "listed": listed})


@cache
def sources() -> dict[str, Source]:
    """Every module of the library by its full name."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return {source.name: source for source in map(_read, paths)}


def comment(module: str, node: ast.stmt) -> str:
    """The comment beside a constant, or in the lines just above it."""
    lines = sources()[module].text.splitlines()
    beside = re.search(r"\s#\s(?!noqa|type:)(.*)$", lines[(node.end_lineno or 1) - 1])
    if beside:
        return beside[1]
    above: list[str] = []
    row = node.lineno - 2
    while row >= 0 and lines[row].startswith("# "):
        above.insert(0, lines[row][2:])
        row -= 1
    return " ".join(above)


@cache
def follow(full_name: str) -> tuple[str, str] | None:
    """The module and the name under which something of the library is defined.

    The name is empty for a module. None for what is not of the library, or not there.
    """
    found = sources()
    module, _, name = full_name.rpartition(".")
    source = found.get(module)
    if source and name in source.defined:
        return module, name
    if source and source.imported.get(name, full_name) != full_name:
        return follow(source.imported[name])
    if full_name in found:
        return full_name, ""
    if source is None:
        return None
    for each in _children(module):  # names that a package imports when they are used
        if source.listed and name in source.listed and name in each.defined:
            return each.name, name
    return None


def _children(package: str) -> list[Source]:
    return [
        source
        for name, source in sources().items()
        if name.rpartition(".")[0] == package
    ]


def _hidden(name: str) -> bool:
    return any(part.startswith("_") for part in name.split("."))


def is_public(module: str) -> bool:
    """Whether a module has a place in the reference."""
    if module in LEFT_OUT or _hidden(module):
        return False
    package, _, name = module.rpartition(".")
    return name in OPEN.get(package, (name,)) if package != LIBRARY else True


@cache
def modules() -> dict[str, Module]:
    """The public modules by their full names, with all that is public in them."""
    names: dict[str, list[str]] = {}
    for module in filter(is_public, sources()):
        source = sources()[module]
        if source.listed is not None and module != LIBRARY:
            names[module] = [*source.listed, *BESIDE.get(module, ())]
        elif module != LIBRARY:
            names[module] = [
                name
                for name, node in source.defined.items()
                if not name.startswith("_")
                and (isinstance(node, Definition) or _tells(source, name, node))
            ]
    # A name that several modules list is at home where it is defined, else in the
    # package of that module.
    homes: dict[tuple[str, str], str] = {}
    for module, listed in names.items():
        for name in listed:
            place = follow(f"{module}.{name}") or _beside(module, name)
            if not place[1]:
                continue
            known = homes.get(place)
            own = place[0] == module or _within(place[0], module)
            if known is None or (own and known != place[0]):
                homes[place] = module
    found = {}
    for module, listed in names.items():
        entries, elsewhere = [], []
        for name in listed:
            place = follow(f"{module}.{name}") or _beside(module, name)
            if not place[1]:
                continue
            node = sources()[place[0]].defined[place[1]]
            entry = Entry(name, homes[place], node, place[0])
            (entries if homes[place] == module else elsewhere).append(entry)
        order = {"class": 0, "function": 0, "data": 1}
        entries.sort(key=lambda e: (order[e.kind], e.source, e.node.lineno))
        doc = ast.get_docstring(sources()[module].tree) or ""
        found[module] = Module(module, doc, tuple(entries), tuple(elsewhere))
    return found


def _tells(source: Source, name: str, node: ast.stmt) -> bool:
    """Whether a constant is for readers: a comment says what it is, or it is a type."""
    value = ast.unparse(getattr(node, "value", None) or ast.Constant(None))
    kind = re.match(
        r"(Callable|NDArray|Mapping|Sequence|dict|tuple|str \||Union)\b", value
    )
    is_type = bool(kind) and name[:1].isupper() and not name.isupper()
    return is_type or bool(comment(source.name, node)) or name in IN_CHAPTERS


def _within(module: str, package: str) -> bool:
    return module.startswith(f"{package}.") and sources()[package].is_package


def _beside(package: str, name: str) -> tuple[str, str]:
    for each in _children(package):
        if name in each.defined:
            return each.name, name
    raise LookupError(f"{package} has no {name}")


@cache
def entries() -> dict[str, Entry]:
    """All entries of the reference by their full names."""
    return {e.full_name: e for module in modules().values() for e in module.entries}


@cache
def _homes() -> dict[tuple[str, str], Entry]:
    return {(e.source, e.name): e for e in entries().values()}


def find(full_name: str) -> Entry | None:
    """The entry that a full name means, however the name got there."""
    place = follow(full_name)
    return _homes().get(place) if place else None


def shortest(entry: Entry) -> str:
    """From where it is imported in the fewest words."""
    top = find(f"{LIBRARY}.{entry.name}")
    return LIBRARY if top == entry else entry.home


# Where chapters use them


@dataclass(frozen=True)
class Section:
    """A heading of a chapter; `number` counts its headings from 0, the title."""

    chapter: str
    number: int
    title: str


@dataclass(frozen=True)
class Chapter:
    """A notebook: its headings, and in which of them library names occur.

    used
        for each entry the first section whose code uses it.
    named
        for each entry the first section whose text names it.
    built
        the entries that "What we built" names.
    names
        what its code has imported from the library: local name, full name.
    """

    stem: str
    sections: tuple[Section, ...]
    used: dict[str, Section]
    named: dict[str, Section]
    built: frozenset[str]
    names: dict[str, str]

    @property
    def number(self) -> str:
        head = self.stem.split("_")[0]
        return str(int(head)) if head.isdigit() else f"appendix {head.upper()}"

    @property
    def title(self) -> str:
        return self.sections[0].title


BUILT = "What we built"
_FENCE = re.compile(r"^(```+|:::+).*?^\1\s*$", re.M | re.S)
_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_PATH = re.compile(r"^specdec_lib/((?:\w+/)*\w+)(?:\.py|/)$")


@cache
def chapters() -> dict[str, Chapter]:
    """All chapters by the names of their files, in their order."""
    paths = sorted((ROOT / "notebooks").glob("*.ipynb"))
    return {path.stem: _chapter(path) for path in paths}


def _chapter(path: Path) -> Chapter:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sections: list[Section] = []
    used: dict[str, Section] = {}
    named: dict[str, Section] = {}
    built: set[str] = set()
    names: dict[str, str] = {}
    for cell in cells:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code":
            for full_name in code_names(text, names):
                if entry := find(full_name):
                    used.setdefault(entry.full_name, sections[-1])
        elif cell["cell_type"] == "markdown":
            for line in _FENCE.sub("", text).split("\n"):
                if heading := re.match(r"#{1,6} +(.*\S)", line):
                    number = len(sections)
                    sections.append(Section(path.stem, number, heading[1]))
                if not sections:
                    continue
                for code in _CODE.findall(line):
                    last = sections[-1].title == BUILT
                    if entry := entry_of_code(code, names, alone=not last):
                        named.setdefault(entry.full_name, sections[-1])
                        if last:
                            built.add(entry.full_name)
    return Chapter(path.stem, tuple(sections), used, named, frozenset(built), names)


def module_of_path(code: str) -> str | None:
    """The module that a path like ``specdec_lib/text.py`` means."""
    if not (found := _PATH.match(code)):
        return None
    full = f"{LIBRARY}.{found[1].replace('/', '.')}"
    return full if full in sources() and shown_under(full) else None


def shown_under(module: str) -> str | None:
    """The module of the reference under which a file's names are found."""
    while module and module != LIBRARY:
        if module in modules():
            return module
        module = module.rpartition(".")[0]
    return None


def entry_of_code(
    code: str, names: dict[str, str], *, alone: bool = True
) -> Entry | None:
    """The entry that inline code like ``sd.generate`` or ``Sampler(…)`` means.

    A name on its own must be that of one entry only; and where it stands `alone`, with
    nothing around that speaks of the library, it may not be a common word.
    """
    found = re.match(r"^([A-Za-z_][\w.]*)(?:\(.*\))?$", code)
    if not found:
        return None
    head, _, rest = found[1].partition(".")
    for start in (names.get(head), f"{LIBRARY}.{head}"):
        full_name = f"{start}.{rest}" if rest else start
        if start and (entry := _longest(full_name or "")):
            return entry
    same = [entry for entry in entries().values() if entry.name == head]
    telling = (head[:1].isupper() and not head.isupper()) or "_" in head or not alone
    return same[0] if len(same) == 1 and telling else None


def _longest(full_name: str) -> Entry | None:
    """The entry of a name, or of the class that it is an attribute of."""
    while full_name.count("."):
        if entry := find(full_name):
            return entry
        full_name = full_name.rpartition(".")[0]
    return None


def code_names(text: str, names: dict[str, str]) -> list[str]:
    """The full names of the library that a cell uses; imports are added to `names`."""
    lines = [
        line for line in text.split("\n") if not line.lstrip().startswith(("%", "!"))
    ]
    tree = ast.parse("\n".join(lines))
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                if each.name.split(".")[0] == LIBRARY:
                    names[each.asname or LIBRARY] = (
                        each.name if each.asname else LIBRARY
                    )
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if module.split(".")[0] == LIBRARY:
                for each in node.names:
                    names[each.asname or each.name] = f"{module}.{each.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name):
            dotted = ast.unparse(node)
            head, _, rest = dotted.partition(".")
            if head in names and re.fullmatch(r"[\w.]+", dotted):
                full = f"{names[head]}.{rest}" if rest else names[head]
                if entry := _longest(full):
                    found.append(entry.full_name)
    return found


@cache
def explained() -> dict[str, tuple[str, ...]]:
    """The chapters that explain each module, from the table of the page "Map"."""
    page = (ROOT / "book" / "map.md").read_text(encoding="utf-8")
    rows = page.split("## The library, module by module")[1].splitlines()
    found = {}
    for row in rows:
        cells = row.split("|")
        for name in re.findall(r"`(\w+)`", cells[1]) if len(cells) > 3 else []:
            stems = re.findall(r"notebooks/(\w+)\.ipynb", cells[3])
            found[f"{LIBRARY}.{name}"] = tuple(stems)
    return found


def explaining(module: str) -> list[Chapter]:
    """The chapters that explain a module, or the package that it belongs to."""
    top = ".".join(module.split(".")[:2])
    return [chapters()[stem] for stem in explained().get(top, ())]


@cache
def builder(entry: Entry) -> Section | None:
    """The section that builds a name, or first uses it; None where none does.

    It is in a chapter whose "What we built" names it, at best in one that explains its
    module; else in one that explains its module, else in the first that uses it. A name
    that no chapter speaks of has the title of the first that explains its module.
    """
    name = entry.full_name
    every = list(chapters().values())
    explain = explaining(entry.home)
    orders = (
        [chapter for chapter in explain if name in chapter.built],
        [chapter for chapter in every if name in chapter.built],
        [chapter for chapter in explain if name in chapter.used],
        [chapter for chapter in every if name in chapter.used],
        [chapter for chapter in explain if name in chapter.named],
    )
    found = [chapter for order in orders for chapter in order]
    sections = [each.used.get(name) or each.named[name] for each in found]
    # Best is a section that does more than to list it.
    for section in [each for each in sections if each.title != BUILT] + sections:
        return section
    if entry.kind == "data" or not explain:
        return None
    return explain[0].sections[0]


def users(entry: Entry) -> list[Chapter]:
    """The chapters whose code uses a name, in their order."""
    return [c for c in chapters().values() if entry.full_name in c.used]


def built_in(chapter: str) -> list[Entry]:
    """The functions and classes that have a section of this chapter, or are named in it
    as built there; without those that only its modules stand for."""
    found = []
    for entry in entries().values():
        section = builder(entry)
        here = chapters()[chapter]
        spoken = entry.full_name in {*here.used, *here.named}
        if section and section.chapter == chapter and spoken and entry.kind != "data":
            found.append(entry)
    return found


def used_in(chapter: str) -> list[Entry]:
    """The other functions and classes that this chapter uses or says to have built."""
    built = built_in(chapter)
    here = chapters()[chapter]
    used = [
        entries()[name] for name in dict.fromkeys([*here.used, *sorted(here.built)])
    ]
    return [entry for entry in used if entry.kind != "data" and entry not in built]


def modules_of(chapter: str) -> list[str]:
    """The modules that this chapter explains, in the order of the map."""
    return [name for name, stems in explained().items() if chapter in stems]
