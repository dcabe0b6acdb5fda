"""Entries of the library reference as reStructuredText."""

from __future__ import annotations

import argparse
import ast
import builtins
import re
import textwrap
import tomllib
from collections.abc import Iterator
from functools import cache
from typing import Any

import library_names as names
from library_names import LIBRARY, ROOT, Entry, Module

ARGUMENTS = ROOT / "book" / "reference" / "arguments.toml"
EXAMPLES = ROOT / "book" / "reference" / "examples.toml"
# Methods without a docstring do what the class says that they belong to.
CONTRACTS = (
    "drafts.Draft",
    "drafts.Session",
    "models.LanguageModel",
    "models.State",
    "models.TreeState",
    "models.LastRowsState",
    "decoding.DraftLength",
    "randomness.RandomSource",
    "service.hooks.Hooks",
)
LONGEST_VALUE = 60


# Signatures


def signature(node: ast.FunctionDef, *, method: bool) -> str:
    """The arguments and the result, as in the source, on one line."""
    arguments = node.args
    static = any("staticmethod" in ast.unparse(d) for d in node.decorator_list)
    if method and not static:
        first = (arguments.posonlyargs or arguments.args)[:1]
        shown = ast.arguments(**{f: getattr(arguments, f) for f in arguments._fields})
        shown.posonlyargs = arguments.posonlyargs[len(first) :]
        shown.args = arguments.args[0 if arguments.posonlyargs else len(first) :]
        arguments = shown
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"({ast.unparse(arguments)}){returns}"


def fields(node: ast.ClassDef) -> list[ast.AnnAssign]:
    """What a dataclass is made with."""
    return [
        each
        for each in node.body
        if isinstance(each, ast.AnnAssign)
        and isinstance(each.target, ast.Name)
        and not each.target.id.startswith("_")
        and "ClassVar" not in ast.unparse(each.annotation)
        and "init=False" not in ast.unparse(each.value or ast.Constant(0))
    ]


def is_made_of_fields(node: ast.ClassDef) -> bool:
    """Whether it is a dataclass, a named tuple or the like."""
    marks = [ast.unparse(each) for each in (*node.decorator_list, *node.bases)]
    return any(
        re.match(r"(dataclasses\.)?dataclass|NamedTuple|TypedDict", m) for m in marks
    )


def class_signature(node: ast.ClassDef) -> str:
    """How an object of the class is made; empty where nobody makes one."""
    made = method_of(node, "__init__")
    if node.name in names.GIVEN:
        return ""
    if made:
        return signature(made, method=True).replace(" -> None", "")
    if not is_made_of_fields(node):
        return ""
    shown = []
    for each in fields(node):
        default = ""
        if each.value is not None:
            value = ast.unparse(each.value)
            found = re.search(r"\bdefault=([^,)]+)", value)
            if value.startswith("field("):
                value = found[1] if found else "..."
            default = f" = {value}"
        shown.append(
            f"{ast.unparse(each.target)}: {ast.unparse(each.annotation)}{default}"
        )
    star = (
        "*, "
        if "kw_only=True" in "".join(map(ast.unparse, node.decorator_list))
        else ""
    )
    return f"({star}{', '.join(shown)})"


def method_of(node: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == name:
            return each
    return None


def methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
    """Those for readers, each once."""
    found: dict[str, ast.FunctionDef] = {}
    for each in node.body:
        if not isinstance(each, ast.FunctionDef):
            continue
        call = each.name == "__call__" and ast.get_docstring(each)
        if not each.name.startswith("_") or call:
            found.setdefault(each.name, each)
    return list(found.values())


def parameters(node: ast.stmt) -> list[str]:
    """The names of the arguments of a function, or of those that make a class."""
    if isinstance(node, ast.ClassDef):
        if node.name in names.GIVEN:
            return []
        made = method_of(node, "__init__")
        if made is None:
            listed = fields(node) if is_made_of_fields(node) else []
            return [ast.unparse(each.target) for each in listed]
        node = made
    assert isinstance(node, ast.FunctionDef)
    every = node.args
    listed_args = [*every.posonlyargs, *every.args, *every.kwonlyargs]
    listed_args += [each for each in (every.vararg, every.kwarg) if each]
    return [each.arg for each in listed_args if each.arg not in ("self", "cls")]


# What docstrings leave to the page


@cache
def examples() -> dict[str, str]:
    """Examples for entries whose docstring has none, by their full names."""
    found = tomllib.loads(EXAMPLES.read_text(encoding="utf-8"))
    return {f"{LIBRARY}.{name}": text for name, text in found.items()}


@cache
def shared_arguments() -> dict[str, dict[str, str]]:
    """The arguments that mean the same everywhere, from their table."""
    return tomllib.loads(ARGUMENTS.read_text(encoding="utf-8"))


def is_told(name: str, doc: str) -> bool:
    """Whether a docstring speaks of an argument."""
    return re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", doc) is not None


def docs_of(entry: Entry) -> str:
    """All that the docstrings of an entry say of making or calling it."""
    made = None
    if isinstance(entry.node, ast.ClassDef):
        made = method_of(entry.node, "__init__")
    return entry.doc + "\n" + (ast.get_docstring(made) or "" if made else "")


def field_comments(entry: Entry) -> dict[str, str]:
    """What comments beside the fields of a class say of them."""
    node = entry.node
    if not isinstance(node, ast.ClassDef) or not is_made_of_fields(node):
        return {}
    found = {
        ast.unparse(each.target): names.comment(entry.source, each)
        for each in fields(node)
    }
    return {name: text for name, text in found.items() if text}


def referred(entry: Entry, doc: str) -> list[str]:
    """The docstrings to which one points: by a role, or by ``Class.method``."""
    pattern = r":\w+:`~?([\w.]+)`|``([A-Z]\w+\.\w+)``"
    found = []
    for match in re.finditer(pattern, doc):
        word = match[1] or match[2]
        inside = f"{entry.full_name}.{word}"
        own = isinstance(entry.node, ast.ClassDef) and method_of(entry.node, word)
        full_name = inside if own else meaning(word, entry.source) or ""
        owner, _, method = full_name.rpartition(".")
        if other := names.entries().get(full_name):
            found.append(docs_of(other))
        elif (other := names.entries().get(owner)) and isinstance(
            other.node, ast.ClassDef
        ):
            inner = method_of(other.node, method)
            found.append(ast.get_docstring(inner) or "" if inner else "")
    return found


def left_to_table(entry: Entry, node: ast.stmt, doc: str) -> list[str]:
    """The arguments that only the table explains."""
    return [name for name in not_told(entry, node, doc) if name in shared_arguments()]


def not_told(entry: Entry, node: ast.stmt, doc: str) -> list[str]:
    """The arguments of which neither an entry says anything, nor what it points to."""
    if re.match(r"\([^)]*\)[^:.]*(->|:)", doc):  # shapes, in the order of the arguments
        return []
    others = referred(entry, doc)
    comments = field_comments(entry) if node is entry.node else {}
    top = ast.get_docstring(names.sources()[entry.source].tree) or ""
    return [
        name
        for name in parameters(node)
        if not is_told(name, doc)
        and not any(is_told(name, other) for other in others)
        and name not in comments
        and not re.search(rf"``{name}``|^ *{name}(\[.*|\s|$)", top, re.M)
    ]


def raised(entry_module: str, node: ast.AST) -> list[str]:
    """The errors that the body of a function raises, or those it calls to check."""
    found = set()
    bodies: list[ast.AST] = [node]
    if isinstance(node, ast.ClassDef):
        bodies = [
            m
            for m in (method_of(node, "__init__"), method_of(node, "__post_init__"))
            if m
        ]
    for body in bodies:
        found |= _raised(entry_module, body, 0)
    return sorted(found)


def _raised(module: str, node: ast.AST, depth: int) -> set[str]:
    found = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Raise) and each.exc is not None:
            error = each.exc.func if isinstance(each.exc, ast.Call) else each.exc
            name = ast.unparse(error)
            if re.fullmatch(r"\w+Error", name):
                found.add(name)
        elif (
            isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and depth < 3
        ):
            if not re.match(r"_?check|distributions$", each.func.id):
                continue
            place = names.follow(f"{module}.{each.func.id}")
            if place and place[1]:
                body = names.sources()[place[0]].defined[place[1]]
                found |= _raised(place[0], body, depth + 1)
    return found


def untold_errors(module: str, node: ast.AST, doc: str) -> list[str]:
    """Those errors of which a docstring says nothing, if it speaks of none at all."""
    if re.search(r"\b\w+Error\b", doc):
        return []
    return raised(module, node)


def contract_of(node: ast.ClassDef, method: str) -> str | None:
    """The entry whose method of this name says what a method without docstring does."""
    for base in node.bases:
        same = [e for e in names.entries().values() if e.name == ast.unparse(base)]
        for entry in same:
            assert isinstance(entry.node, ast.ClassDef)
            found = method_of(entry.node, method)
            if found and ast.get_docstring(found):
                return f"{entry.full_name}.{method}"
    own = {each.name for each in methods(node)}
    best: tuple[int, str] | None = None
    for short in CONTRACTS:
        entry = names.entries()[f"{LIBRARY}.{short}"]
        assert isinstance(entry.node, ast.ClassDef)
        theirs = {each.name for each in methods(entry.node)}
        attributes = {ast.unparse(f.target) for f in fields(entry.node)}
        shared = len(own & (theirs | attributes))
        if method in theirs | attributes and (best is None or shared > best[0]):
            found = method_of(entry.node, method)
            if found is None or ast.get_docstring(found):
                best = shared, entry.full_name
    return f"{best[1]}.{method}" if best else None


# reStructuredText


def tidy(doc: str) -> str:
    """A docstring as reStructuredText.

    What is set off by an empty line and a margin is meant to stay as it is: a table,
    or a few lines of text. Examples lose their notes to doctest.
    """
    doc = re.sub(rf":(\w+):`{LIBRARY}\.([\w.]+)`", rf":\1:`\2 <{LIBRARY}.\2>`", doc)
    # A term that goes over two lines is one.
    doc = re.sub(
        r"(:[\w:]+:`[^`]*`|``[^`]*``)|`([^`\n]+)`",
        lambda found: found[1] or f"``{found[2]}``",
        doc,
    )
    doc = re.sub(r"^( *)(``[^\n]*,)\n\1(``[^\n]*\n\1 +\S)", r"\1\2 \3", doc, flags=re.M)
    lines = doc.expandtabs().splitlines()
    found: list[str] = []
    inside = None  # the margin of the paragraph that a table stands in
    for i, line in enumerate(lines):
        margin = len(line) - len(line.lstrip())
        before = next((each for each in reversed(lines[:i]) if each.strip()), "")
        after_gap = i > 0 and not lines[i - 1].strip()
        if not line.strip():
            found.append("")
            continue
        if inside is not None and margin <= inside:
            inside = None
        if inside is None and after_gap and before.strip():
            around = len(before) - len(before.lstrip())
            told = before.rstrip().endswith("::")
            if margin > around and not told and not line.lstrip().startswith(">>>"):
                found += [" " * around + "::", ""]
                inside = around
        found.append(line)
    return "\n".join(found)


def indented(lines: str, by: int = 3) -> list[str]:
    return textwrap.indent(lines, " " * by).split("\n")


def module_lines(module: Module) -> Iterator[str]:
    """A module: what it is for, then its entries."""
    yield f".. py:module:: {module.name}"
    yield ""
    path = names.sources()[module.name].path.relative_to(ROOT)
    yield f"In ``{path.as_posix()}``."
    yield ""
    yield from tidy(module.doc).split("\n")
    yield ""
    if module.elsewhere:
        links = ", ".join(f":py:obj:`~{each.full_name}`" for each in module.elsewhere)
        yield f"Also found here: {links}."
        yield ""
    for entry in module.entries:
        yield from entry_lines(entry)


def entry_lines(entry: Entry) -> Iterator[str]:
    node = entry.node
    if isinstance(node, ast.FunctionDef):
        yield from _head("function", entry.name + signature(node, method=False))
        yield from indented(tidy(entry.doc))
        yield from _facts(entry, node, entry.doc, 3)
    elif isinstance(node, ast.ClassDef):
        bases = [ast.unparse(base) for base in node.bases]
        error = any(re.search(r"(Error|Exception)$", base) for base in bases)
        kind = "exception" if error else "class"
        yield from _head(kind, entry.name + class_signature(node))
        yield from indented(tidy(entry.doc))
        yield ""
        made = method_of(node, "__init__")
        if made and ast.get_docstring(made):
            yield from indented(tidy(ast.get_docstring(made) or ""))
        told = {
            n: c
            for n, c in field_comments(entry).items()
            if not is_told(n, docs_of(entry))
        }
        yield ""
        for name, words in told.items():
            yield from indented(f"{name}\n    {_escaped(words)}")
        yield from _facts(entry, node, docs_of(entry), 3)
        if "Protocol" in bases:
            for each in fields(node):
                yield from indented(
                    f".. py:attribute:: {ast.unparse(each.target)}\n"
                    f"   :type: {ast.unparse(each.annotation)}\n"
                )
        for method in methods(node):
            yield from method_lines(entry, node, method)
    else:
        value = _value(node)
        yield f".. py:data:: {entry.name}"
        if value:
            yield f"   :value: {value}"
        yield ""
        yield from indented(_sentence(entry.doc))
        yield from _facts(entry, node, "", 3)
    yield ""


def _head(kind: str, line: str) -> list[str]:
    return [f".. py:{kind}:: {line}", ""]


def _value(node: ast.stmt) -> str:
    value = " ".join(ast.unparse(node.value).split())  # type: ignore[attr-defined]
    if value.startswith("re.compile"):  # says nothing; the comment does
        return ""
    return value if len(value) <= LONGEST_VALUE else value[: LONGEST_VALUE - 2] + " …"


def _escaped(words: str) -> str:
    """Plain words, with no mark of reStructuredText that they do not mean."""
    parts = re.split(r"(``[^`]*``)", words)
    parts[::2] = [re.sub(r"([*`|\\_])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def _sentence(comment: str, *, escape: bool = True) -> str:
    text = _escaped(comment.strip()) if escape else comment.strip()
    if not text:
        return ""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", ":")) else ".")


def method_lines(
    entry: Entry, owner: ast.ClassDef, node: ast.FunctionDef
) -> Iterator[str]:
    marks = [ast.unparse(each) for each in node.decorator_list]
    doc = ast.get_docstring(node) or ""
    if not doc:
        contract = contract_of(owner, node.name)
        doc = (
            f"As :py:obj:`{'.'.join(contract.split('.')[-2:])} <{contract}>`."
            if contract
            else ""
        )
    lines = []
    if any(re.search(r"property$", mark) for mark in marks):
        lines.append(f".. py:property:: {node.name}")
        if node.returns:
            lines.append(f"   :type: {ast.unparse(node.returns)}")
    else:
        lines.append(f".. py:method:: {node.name}{signature(node, method=True)}")
        for mark in ("classmethod", "staticmethod"):
            if mark in marks:
                lines.append(f"   :{mark}:")
    lines.append("")
    yield from indented("\n".join(lines))
    yield from indented(tidy(doc), 6)
    yield from _facts(entry, node, doc, 6, chapters=False)


def _facts(
    entry: Entry, node: ast.stmt, doc: str, by: int, *, chapters: bool = True
) -> Iterator[str]:
    """What the page adds: arguments of the table, errors, where to import, chapters."""
    space = " " * by
    yield ""
    if node is entry.node and entry.full_name in examples():
        yield from indented(examples()[entry.full_name].strip(), by)
        yield ""
    if entry.kind != "data" and not isinstance(node, ast.AnnAssign):
        table = left_to_table(entry, node, doc)
        if table:
            listed = ", ".join(table)
            yield f"{space}As everywhere: :ref:`{listed} <library-arguments>`."
            yield ""
        errors = untold_errors(entry.source, node, doc)
        if errors:
            yield f"{space}Raises {' or '.join(errors)} for arguments it cannot take."
            yield ""
    if chapters:
        yield f"{space}.. library-chapters:: {entry.full_name}"
        yield ""


@cache
def pages() -> dict[str, str]:
    """The modules in the order of the pages, and the page of each."""
    toc = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    found = {}
    for page in re.findall(r"file: (book/reference/\w+)", toc):
        text = (ROOT / f"{page}.md").read_text(encoding="utf-8")
        for module in re.findall(r"^\.\. library-module:: (\S+)", text, re.M):
            found[module] = page
    return found


def overview_lines() -> Iterator[str]:
    yield ".. list-table::"
    yield "   :header-rows: 1"
    yield ""
    yield "   * - Module"
    yield "     - What it holds"
    yield "     - Chapters"
    for module in map(names.modules().get, pages()):
        assert module is not None
        short = module.name.removeprefix(f"{LIBRARY}.")
        yield f"   * - :py:mod:`{short} <{module.name}>`"
        yield f"     - {module.summary}"
        yield f"     - :library-chapters:`{module.name}`"
    yield ""


def arguments_lines() -> Iterator[str]:
    for name, row in shared_arguments().items():
        yield f"``{name}``: {row['type']}"
        yield from indented(row["text"].strip())
        yield ""


# Names in signatures and docstrings


@cache
def scope(module: str) -> dict[str, str]:
    """What the names of a module, and of the modules of a package, mean in full."""
    found = {}
    for name, source in names.sources().items():
        if name == module or name.startswith(f"{module}."):
            for own in source.defined:
                found.setdefault(own, f"{name}.{own}")
            for local, full in source.imported.items():
                found.setdefault(local, full)
    return found


def meaning(target: str, module: str) -> str | None:
    """The full name of what `target` means in a module; "" for what has no entry.

    None where there is no such name.
    """
    target = target.lstrip("~")
    if target.startswith("."):
        target = target.lstrip(".")
    head, _, rest = target.partition(".")
    known = scope(module)
    tries = [target, f"{module}.{target}", f"{LIBRARY}.{target}"]
    if head in known:
        tries.insert(0, f"{known[head]}.{rest}" if rest else known[head])
    package = module.rpartition(".")[0]
    tries.append(f"{package}.{target}")
    for full in tries:
        if full in names.sources():
            return full
        if entry := names.find(full):
            return entry.full_name
        owner, _, attribute = full.rpartition(".")
        if entry := names.find(owner):
            return f"{entry.full_name}.{attribute}"
        if names.follow(full):
            return ""
    if head in known and not known[head].startswith(f"{LIBRARY}."):
        return ""
    if hasattr(builtins, head):
        return ""
    return None


# The command line


@cache
def commands() -> dict[str, argparse.ArgumentParser]:
    """Every command by its words, ``models get`` for instance, "" for the whole."""
    from specdec_lib import cli

    found: dict[str, argparse.ArgumentParser] = {}

    def add(words: str, parser: argparse.ArgumentParser) -> None:
        found[words] = parser
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for each in action._choices_actions:  # what help says of each
                    inner = action.choices[each.dest]
                    inner.description = inner.description or each.help
                for name, inner in action.choices.items():
                    add(f"{words} {name}".strip(), inner)

    add("", cli._parser())
    return found


def complete_commands() -> list[str]:
    """Those that no further word follows."""
    found = commands()
    return [
        words
        for words in found
        if words and not any(other.startswith(f"{words} ") for other in found)
    ]


def command_lines(words: str) -> Iterator[str]:
    """A command: what it does, how it is called, and its flags."""
    parser = commands()["" if words == "specdec" else words]
    name = f"specdec {words}" if words != "specdec" else "specdec"
    about = _sentence(_flags_as_code(parser.description or ""), escape=False)
    yield from textwrap.wrap(about, 88, break_on_hyphens=False)
    yield ""
    yield f".. program:: {name}"
    yield ""
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
            continue
        yield f".. option:: {_option(action)}"
        yield ""
        yield from indented(
            _sentence(_flags_as_code(_help(parser, action)), escape=False)
        )
        yield ""


def _flags_as_code(words: str) -> str:
    """Plain words in which flags, files and commands are code."""
    known = sorted((f"specdec {name}".strip() for name in commands()), reverse=True)
    kinds = "|".join([r"--?[a-z][\w-]*", r"specdec_lib(?:[./]\w+)*", *known])
    return _escaped(re.sub(rf"(?<![\w-])({kinds})(?![\w-])", r"``\1``", words))


def _option(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
    if action.choices is not None:
        value = "{" + " | ".join(map(str, action.choices)) + "}"
    if not action.option_strings:
        return value
    return ", ".join(f"{flag} {value}".strip() for flag in action.option_strings)


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = (action.help or "").strip()
    if "%" in text:
        text = parser._get_formatter()._expand_help(action)
    if isinstance(action, argparse._VersionAction):
        return "The version of the library."
    if action.required and action.option_strings:
        return f"{text} Required.".strip()
    return re.sub(r"^\((.*)\)$", r"by default \1", text)


def own_flags(words: str) -> list[str]:
    """The flags and names of one command, as the page shows them."""
    found: list[Any] = []
    for action in commands()[words]._actions:
        if not isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
            found.append(
                action.option_strings[-1] if action.option_strings else action.dest
            )
    return list(map(str, found))
