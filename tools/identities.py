"""Every numbered formula and theorem of the book, and the tests tied to them by label.

    python tools/identities.py                 the labels, and where they are tested
    python tools/identities.py keep LABEL ...  its test fits what the book now says
    python tools/identities.py keep --all

`tests/identities.toml` keeps what each of them said when its test was written. Whoever
changes a formula is sent to its test first, and keeps the new wording after that.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from book_labels import ROOT, Label, statements

TESTS = Path("tests/unit/identities")
KEPT = Path("tests/identities.toml")
HEAD = """\
# What each numbered formula and theorem of the book said when its test was written;
# the tests are in tests/unit/identities. If the book says something else now: look at
# the test, and then
#
#     .venv/bin/python tools/identities.py keep LABEL
#
# One that no number can test has `untested`, with the reason, and no test.
"""


def _tests(root: Path) -> Iterator[tuple[ast.Module, str, ast.FunctionDef, ast.Call]]:
    """(module, its path, test, ``identity(...)``) of each test with that decorator."""
    for path in sorted((root / TESTS).glob("test_*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(module):
            for call in getattr(node, "decorator_list", ()):
                if (
                    isinstance(node, ast.FunctionDef)
                    and isinstance(call, ast.Call)
                    and ast.unparse(call.func) == "identity"
                    and call.args
                    and isinstance(call.args[0], ast.Constant)
                ):
                    yield module, path.relative_to(root).as_posix(), node, call


def tied(root: Path = ROOT) -> dict[str, list[str]]:
    """label -> the tests that stand under ``@identity("label", ...)``, as pytest has
    them."""
    found: dict[str, list[str]] = {}
    for _, path, test, call in _tests(root):
        label = str(ast.literal_eval(call.args[0]))
        found.setdefault(label, []).append(f"{path}::{test.name}")
    return found


def wrong_formulas(root: Path = ROOT) -> int:
    """How many the tests are given, to fail on: read, and not imported."""

    def entries(value: ast.expr, module: ast.Module) -> int:
        if isinstance(value, ast.Name):
            [given] = [
                node.value
                for node in module.body
                if isinstance(node, ast.Assign)
                and ast.unparse(node.targets[0]) == value.id
            ]
            return entries(given, module)
        if isinstance(value, ast.DictComp):  # over the items of another
            source = value.generators[0].iter
            if isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute):
                return entries(source.func.value, module)
        if isinstance(value, ast.Dict):
            return sum(
                1 if key is not None else entries(more, module)
                for key, more in zip(value.keys, value.values, strict=True)
            )
        raise ValueError(f"cannot count the entries of {ast.unparse(value)}")

    return sum(
        entries(keyword.value, module)
        for module, _, _, call in _tests(root)
        for keyword in call.keywords
        if keyword.arg == "wrong"
    )


def kept(root: Path = ROOT) -> dict[str, dict[str, str]]:
    """What `tests/identities.toml` has of each label."""
    path = root / KEPT
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def problems(
    said: dict[str, Label],
    tests: dict[str, list[str]],
    known: dict[str, dict[str, Any]],
) -> list[str]:
    """Labels without a test, tests without a label, and what reads otherwise now."""
    found = []
    for name, label in said.items():
        entry = known.get(name, {})
        untested = entry.get("untested")
        if name not in tests and not untested:
            found.append(
                f"{label.place}: the {label.kind} {name} has no test; write one under "
                f'@identity("{name}", ...) in {TESTS}'
            )
            continue
        if name in tests and untested:
            found.append(f"{name} has a test and a reason for having none")
        where = " and ".join(tests.get(name, [f"its reason in {KEPT}"]))
        if entry.get("reads", "").split() != label.reads.split():
            found.append(
                f"{label.place}: {name} reads otherwise than when its test was "
                f"written. Look at {where}, then: "
                f"python tools/identities.py keep {name}"
            )
    for name, places in tests.items():
        if name not in said:
            found.append(f"{' and '.join(places)}: the book has no label {name}")
    for name, entry in known.items():
        if name not in said:
            found.append(f"{KEPT}: the book has no label {name}")
        if set(entry) - {"reads", "untested"}:
            found.append(f"{KEPT}: {name} has more than `reads` and `untested`")
    return found


def written(said: dict[str, Label], known: dict[str, dict[str, str]]) -> str:
    """The TOML file, in the order of the book."""
    parts = [HEAD]
    for name in said:
        entry = known.get(name)
        if entry is None:
            continue
        if "'''" in entry["reads"]:
            raise ValueError(f"{name} has three quotation marks in a row")
        lines = [f"[{name}]"]
        if "untested" in entry:
            reason = entry["untested"].replace("\\", "\\\\").replace('"', '\\"')
            lines.append(f'untested = "{reason}"')
        lines.append(f"reads = '''\n{entry['reads'].strip()}\n'''")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def keep(names: list[str], root: Path = ROOT) -> None:
    """Keep what the book says of ``names``, and drop labels that it no longer has."""
    said, known = statements(root), kept(root)
    unknown = sorted(set(names) - set(said))
    if unknown:
        raise ValueError(f"the book has no label {', '.join(unknown)}")
    for name in names:
        known[name] = {**known.get(name, {}), "reads": said[name].reads}
    (root / KEPT).write_text(written(said, known), encoding="utf-8")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(dest="command")
    keeping = commands.add_parser("keep", help="the test fits what the book says now")
    keeping.add_argument("labels", nargs="*", metavar="LABEL")
    keeping.add_argument("--all", action="store_true")
    options = parser.parse_args(arguments)
    said, tests = statements(), tied()
    if options.command == "keep":
        names = list(said) if options.all else options.labels
        try:
            keep(names)
        except ValueError as error:
            parser.error(str(error))
        print(f"{KEPT}: {len(names)} kept")
        return 0
    for name, label in said.items():
        print(f"{name:22} {label.kind:12} {', '.join(tests.get(name, ['no test']))}")
    found = problems(said, tests, kept())
    print(*found, sep="\n")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
