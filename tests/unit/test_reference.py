"""The library reference: all public names are there, and their entries say enough."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import library_names as names
import library_text as text
import numpy as np
import pytest
from library_names import LIBRARY

import specdec_lib as sd

PAGES = text.pages()
ENTRIES = names.entries()
CALLED = [entry for entry in ENTRIES.values() if entry.kind != "data"]
MAIN = [entry for entry in CALLED if names.shortest(entry) == LIBRARY]


def ids(entry):
    return entry.full_name.removeprefix(f"{LIBRARY}.")


# Complete


def test_every_public_module_has_a_place_on_one_page(root):
    listed = [
        module
        for page in sorted((root / "book" / "reference").glob("*.md"))
        for module in re.findall(
            r"^\.\. library-module:: (\S+)", page.read_text(encoding="utf-8"), re.M
        )
    ]
    assert sorted(listed) == sorted(set(listed))
    assert set(listed) == set(names.modules()) == set(PAGES)


def test_modules_stand_in_the_order_of_the_library():
    order = re.findall(r"^    (\w+) {2,}", sd.__doc__, re.M)
    shown = [name.split(".")[1] for name in PAGES]
    assert [name for name in dict.fromkeys(shown) if name in order] == order


@pytest.mark.parametrize("module", ["", *sorted(names.modules())])
def test_all_that_a_module_lists_has_an_entry(module):
    source = names.sources()[module or LIBRARY]
    for name in source.listed or ():
        full_name = f"{source.name}.{name}"
        assert names.find(full_name) or full_name in names.sources(), full_name


def test_every_module_is_in_the_reference_or_left_out_for_a_reason():
    for module in names.sources():
        package, _, _name = module.rpartition(".")
        shown = module in names.modules()
        told = module in names.LEFT_OUT or package in names.OPEN
        assert shown or told or "._" in module or module == LIBRARY, module
    assert all(names.LEFT_OUT.values())
    assert set(names.LEFT_OUT) <= set(names.sources())
    for package, inside in names.OPEN.items():
        assert {f"{package}.{name}" for name in inside} <= set(names.sources())


@pytest.mark.parametrize(
    "module", [m for m in sorted(names.modules()) if m.count(".") == 1]
)
def test_reading_the_source_finds_what_importing_finds(module):
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        pytest.skip(f"without {error.name}")
    listed = getattr(found, "__all__", None)
    if listed is None:
        listed = [
            name
            for name, value in vars(found).items()
            if not name.startswith("_")
            and (inspect.isfunction(value) or inspect.isclass(value))
            and value.__module__ == module
        ]
    for name in listed:
        entry = names.find(f"{module}.{name}")
        if entry is None:  # a module of a package
            assert inspect.ismodule(getattr(found, name)), name
            continue
        value = getattr(found, name)
        if inspect.isfunction(value):
            assert entry.kind == "function"
            assert text.parameters(entry.node) == list(
                inspect.signature(value).parameters
            )
        elif inspect.isclass(value):
            assert entry.kind == "class"


def test_what_chapters_use_is_public():
    for chapter in names.chapters().values():
        assert chapter.used, chapter.stem


# Nothing but the source is read


def test_the_pages_need_no_package_but_numpy():
    code = (
        "import sys; sys.path[:0] = ['tools']; before = set(sys.modules); "
        "import library_text as t, library_names as n; "
        "[list(t.module_lines(m)) for m in n.modules().values()]; t.commands(); "
        "new = {name.split('.')[0] for name in set(sys.modules) - before}; "
        "ours = {'specdec_lib', 'library_names', 'library_text'}; "
        "print(*sorted(new - set(sys.stdlib_module_names) - ours))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=names.ROOT,
    )
    assert done.stdout.split() == ["numpy"]


# An entry says enough


@pytest.mark.parametrize("entry", CALLED, ids=ids)
def test_an_entry_says_what_it_is(entry):
    first = entry.doc.split("\n\n")[0].strip()
    assert first, "no docstring"
    assert first.endswith((".", ":", ";")), first


@pytest.mark.parametrize("entry", CALLED, ids=ids)
def test_an_entry_tells_of_every_argument(entry):
    parts = [(entry.node, text.docs_of(entry))]
    if isinstance(entry.node, ast.ClassDef):
        for method in text.methods(entry.node):
            doc = ast.get_docstring(method)
            if doc:
                parts.append((method, doc))
            else:
                assert text.contract_of(entry.node, method.name), (
                    f"{method.name} says nothing, and belongs to no contract"
                )
    for node, doc in parts:
        untold = set(text.not_told(entry, node, doc)) - set(text.shared_arguments())
        assert not untold, getattr(node, "name", "")


@pytest.mark.parametrize(
    "entry", [e for e in CALLED if text.raised(e.source, e.node)], ids=ids
)
def test_an_entry_that_checks_speaks_of_errors(entry):
    shown = "\n".join(text.entry_lines(entry))
    assert re.search(r"\b\w+Error\b", shown)


@pytest.mark.parametrize("entry", MAIN, ids=ids)
def test_a_main_entry_has_an_example(entry):
    assert (">>>" in text.docs_of(entry)) != (entry.full_name in text.examples())


@pytest.mark.parametrize("name", sorted(text.examples()))
def test_an_example_prints_what_it_says(name):
    assert name in ENTRIES
    test = doctest.DocTestParser().get_doctest(
        text.examples()[name], {"sd": sd, "np": np}, name, None, 0
    )
    assert test.examples
    said: list[str] = []
    doctest.DocTestRunner().run(test, out=said.append)
    assert not said, "".join(said)


def test_shared_arguments_are_shared_and_say_what_they_are():
    taken = Counter(
        name
        for entry in CALLED
        for node in [
            entry.node,
            *(text.methods(entry.node) if entry.kind == "class" else []),
        ]
        for name in text.parameters(node)
    )
    for name, row in text.shared_arguments().items():
        assert row["type"]
        assert row["text"].strip().endswith("."), name
        assert taken[name] >= 2, name


# Chapters and entries, both ways


def test_the_map_names_modules_that_there_are():
    for module, stems in names.explained().items():
        assert module in names.sources(), module
        assert set(stems) <= set(names.chapters())


def test_what_a_chapter_says_it_built_links_back_to_it():
    for chapter in names.chapters().values():
        for name in chapter.built:
            entry = ENTRIES[name]
            places = {each.stem for each in names.users(entry)}
            if section := names.builder(entry):
                places.add(section.chapter)
            assert places, name
            stem = chapter.stem
            assert entry in [*names.built_in(stem), *names.used_in(stem)]


@pytest.mark.parametrize("stem", sorted(names.chapters()))
def test_a_chapter_leads_to_its_entries_and_they_to_it(stem):
    chapter = names.chapters()[stem]
    built, used = names.built_in(stem), names.used_in(stem)
    assert {entry.full_name for entry in used} <= {*chapter.used, *chapter.built}
    for name in chapter.used:
        entry = ENTRIES[name]
        assert chapter in names.users(entry)
        assert (entry in built) + (entry in used) == (entry.kind != "data")
    for entry in built:
        assert names.builder(entry) in chapter.sections
    for module in names.modules_of(stem):
        assert chapter in names.explaining(module)
        assert module in names.modules() or module in names.LEFT_OUT


@pytest.mark.parametrize("entry", CALLED, ids=ids)
def test_an_entry_leads_to_a_chapter_that_leads_back(entry):
    section = names.builder(entry)
    if section is None:  # no chapter speaks of its module, and the map says so
        assert not names.explaining(entry.home)
        return
    module = ".".join(entry.home.split(".")[:2])
    assert entry in names.built_in(section.chapter) or module in names.modules_of(
        section.chapter
    )


def test_the_loop_is_found_where_a_reader_would_look():
    def place(name):
        section = names.builder(ENTRIES[f"{LIBRARY}.{name}"])
        return section.chapter[:2], section.title

    assert place("verification.residual")[0] == "05"
    assert place("decoding.generate")[0] == "04"
    assert place("drafts.PromptLookup") == ("10", "Prompt lookup by hand")
    assert place("verification.verify_tree")[0] == "11"
    assert place("theory.expected_tokens")[0] == "08"


@pytest.mark.parametrize(
    "code, full_name",
    [
        ("sd.generate", "decoding.generate"),
        ("verify_tokens", "verification.verify_tokens"),
        ("Sampler(temperature=0)", "sampling.Sampler"),
        ("NGramModel.perplexity", "ngram.NGramModel"),
        ("theory.speedup", "theory.speedup"),
        ("ratio", None),  # a word that may mean anything
        ("TARGET", None),
        ("model.start", None),
        ("x + 1", None),
    ],
)
def test_code_in_the_text_means_an_entry_or_nothing(code, full_name):
    found = names.entry_of_code(code, {"sd": LIBRARY})
    assert (found and found.full_name) == (full_name and f"{LIBRARY}.{full_name}")


def test_names_are_followed_through_imports():
    known: dict[str, str] = {}
    code = (
        "import specdec_lib as sd\n"
        "from specdec_lib import experiments as ex\n"
        "%matplotlib inline\n"
        "sd.generate; ex.ratio; sd.theory.speedup; other.generate"
    )
    assert set(names.code_names(code, known)) == {
        f"{LIBRARY}.decoding.generate",
        f"{LIBRARY}.records.ratio",
        f"{LIBRARY}.theory.speedup",
    }


# Text


def test_a_table_in_a_docstring_stays_a_table():
    doc = "Some rows:\n\n    a   1\n    b   2\n\nThe end."
    assert text.tidy(doc) == "Some rows:\n\n::\n\n    a   1\n    b   2\n\nThe end."


def test_arguments_in_a_docstring_stay_a_list():
    doc = "What.\n\nk\n    guesses, see :func:`generate` and `k`."
    assert text.tidy(doc) == (
        "What.\n\nk\n    guesses, see :func:`generate` and ``k``."
    )


def test_a_name_means_what_it_does_in_its_module():
    assert text.meaning("Settings", f"{LIBRARY}.ngram") == f"{LIBRARY}.ngram.Settings"
    assert text.meaning("Settings", f"{LIBRARY}.service.app") == (
        f"{LIBRARY}.service.settings.Settings"
    )
    assert text.meaning("np.float64", f"{LIBRARY}.theory") == ""
    assert text.meaning("NoSuchName", f"{LIBRARY}.theory") is None


# The command line


def test_every_command_has_a_place(root):
    page = (root / "book" / "reference" / "commands.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\.\. library-command:: (.+)$", page, re.M)
    assert shown == ["specdec", *(words for words in text.commands() if words)]
    heads = re.findall(r"^#+ `specdec (.+)`$", page, re.M)
    assert heads == shown[1:]


@pytest.mark.parametrize("words", sorted(text.commands()))
def test_every_flag_is_shown_with_its_help(words):
    lines = list(text.command_lines(words or "specdec"))
    shown = "\n".join(lines)
    for flag in text.own_flags(words):
        assert re.search(rf"option:: .*{re.escape(flag)}", shown, re.IGNORECASE)
    for i, line in enumerate(lines):
        if line.startswith(".. option::"):
            assert lines[i + 2].strip(), f"{line} has no help"
    assert "==SUPPRESS==" not in shown


def test_no_page_is_written_for_one_machine(root):
    home = str(Path.home())
    for module in names.modules().values():
        assert home not in "\n".join(text.module_lines(module))
