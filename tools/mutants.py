"""Change the core's code in every small way, and see whether a test notices.

    make mutants                                   all; half an hour on two cores
    make mutants MODULES="sampling metrics"        these alone, into the same report
    python tools/mutants.py --list metrics         what would be changed there
    python tools/mutants.py sampling --where _filter

A mutant is the source of one module with one change: a comparison turned (< and <=, ==
and !=, in and not in, is and is not), an arithmetic operator swapped, a constant one
more, one less, doubled, halved, flipped or emptied, `and` for `or`, a part of a
condition left out, a condition that always or never holds, a statement removed, a
bound of a slice moved or dropped, an argument left out, min for max, any for all,
break for continue, a sign dropped, a copy not made, another exception. Left as they
are: docstrings, annotations and aliases of types, imports, `__all__`, and the messages
of errors.

One process imports the library and the tests, and learns in two runs without any
change which tests come by which lines, and how long each takes. For every mutant it
then forks; the child puts the changed code into the living functions and runs the
module's tests that come by, until one fails. One that uses too much processor time is
noticed by the limit, and counted apart. What is no code of a function (defaults, fields
of a class), and what is still unnoticed and was used while the tests were being
imported, is changed before the import, in a process of its own.

Each mutant that no test notices stands in `tests/mutants_survivors.toml` with the
reason why it may live. The exit status is 1 where one survives that is not there, or
one is there that does not survive.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import hashlib
import importlib.machinery
import importlib.util
import json
import os
import pickle
import resource
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "specdec_lib"
SURVIVORS = ROOT / "tests" / "mutants_survivors.toml"
RULES = ("unit/test_verification", "unit/test_faults_rules", "unit/test_numbers")
BLOCKS = ("unit/test_verification_block_tree", "exactness/test_block_and_trees")
LOOP = ("unit/test_decoding", "unit/test_last_rows", "unit/test_faults_loop")
ALWAYS = (
    "unit/test_contract",
    "unit/test_mutants_killed",
    "unit/test_hostile_models",
)
# Each module, and the tests that are to notice its mutants.
TESTS = {
    "randomness": ("unit/test_randomness", "unit/test_numbers"),
    "sampling": ("unit/test_sampling", "unit/test_numbers"),
    "verification/exact": (*RULES, BLOCKS[0]),
    "verification/block": (*BLOCKS, *RULES[1:]),
    "verification/tree": (*BLOCKS, *RULES[1:]),
    "verification/lossy": RULES[:1],
    "decoding": (*LOOP, "unit/test_trees", BLOCKS[1], "exactness/test_exact"),
    "metrics": ("unit/test_metrics",),
    "drafts/model": ("unit/test_drafts", "unit/test_draft_length", *LOOP),
    "drafts/trees": ("unit/test_trees", BLOCKS[1], "unit/test_faults_loop"),
}
MODULES = tuple(TESTS)
LEFT_OUT = (  # thorough and slow: what only they notice counts as not noticed
    "test_a_draft_whose_window_is_any_shorter_or_longer",
    "test_a_stop_at_every_place_of_a_round_ends_the_text_there",
    "test_a_vocabulary_of_200_000_tokens",
    "test_an_n_gram_state_reads_trees",
    "test_block_rule_in_the_whole_loop",
    "test_cases_taken_at_random",
    "test_chances_too_small_to_add_up",
    "test_context_windows",
    "test_every_budget_is_kept_to_the_token",
    "test_every_draft_reports_what_it_drew_from",
    "test_every_prompt_against_every_k_up_to_the_end_of_the_window",
    "test_every_prompt_with_a_length_that_is_chosen",
    "test_every_row_of_every_model_is_that_of_a_fresh_reading",
    "test_every_temperature_with_logits_of_any_size",
    "test_every_type_is_exact",
    "test_merged_rounds",
    "test_n_gram_models",
    "test_n_gram_models_by_the_block_rule",
    "test_processors_on_the_target_alone",
    "test_reading_by_branches",
    "test_ten_thousand_tokens_without_drift",
    "test_the_acceptance_rate_estimates_the_overlap",
    "test_the_block_rule_never_brings_less_than_the_token_rule",
    "test_the_loop_at_every_temperature",
    "test_tree_rule_in_the_whole_loop",
    "test_what_more_guesses_for_a_place_bring",
    "test_whole_loop_with_three_guesses",
)
SECONDS = 2.0  # of processor time for a test, above ten times what it takes by itself
MEMORY = 1 << 30  # bytes that a mutant may take more than the tests had already
PYTEST = (
    *("-p", "no:cacheprovider", "-p", "no:terminal", "-p", "no:faulthandler"),
    *("--capture=sys", "-o", "addopts=--import-mode=importlib"),
)


# What is changed.


@dataclass(frozen=True)
class Mutant:
    """One change of a module.

    module, function, line
        where: "verification/exact", "residual", and the source line, without margins.
    old, new
        what stands there, and what takes its place.
    nth
        which of several that are alike in all this, from 0.
    kind
        the operator that made it.
    start, end
        the place of ``old`` in the bytes of the source.
    first, last
        numbers of the lines of its statement; of the head of one with a body.
    """

    module: str
    function: str
    line: str
    old: str
    new: str
    kind: str
    start: int
    end: int
    first: int
    last: int
    living: bool  # whether it is code of a function
    nth: int = 0

    @property
    def key(self) -> tuple[str, str, str, str, str, int]:
        return (*self.alike, self.nth)

    @property
    def alike(self) -> tuple[str, str, str, str, str]:
        return self.module, self.function, self.line, self.old, self.new

    def source(self, source: str) -> str:
        """``source``, changed."""
        raw = source.encode()
        new = self.new if self.kind in STATEMENTS else f"({self.new})"
        return (raw[: self.start] + new.encode() + raw[self.end :]).decode()


STATEMENTS = ("statement removed", "break and continue", "exception", "in place")

COMPARED: dict[type, type] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
ARITHMETIC: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
TURNED = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "minimum": "maximum",
    "maximum": "minimum",
    "argmin": "argmax",
    "argmax": "argmin",
    "ones": "zeros",
    "zeros": "ones",
}


def changed(node: Any, **fields: Any) -> Any:
    """A copy of ``node`` with other ``fields``."""
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def without(items: Sequence[Any], i: int) -> list[Any]:
    return [*items[:i], *items[i + 1 :]]


def other_constants(value: object) -> list[object]:
    """What takes the place of a constant."""
    if isinstance(value, bool):
        return [not value]
    if value is None:
        return [0]
    if isinstance(value, str):
        return [""] if value else ["?"]
    if isinstance(value, int) or value in (0.0, 1.0):
        return [value + 1, value - 1]  # type: ignore[operator]
    if isinstance(value, float):
        return [value * 2, value / 2]
    return []


def expressions(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """What an expression by itself may be changed into, and by which operator."""
    match node:
        case ast.Compare():
            for i, op in enumerate(node.ops):
                ops = [*node.ops]
                ops[i] = COMPARED[type(op)]()
                yield "comparison", changed(node, ops=ops)
        case ast.BinOp() if type(node.op) in ARITHMETIC:
            yield "arithmetic", changed(node, op=ARITHMETIC[type(node.op)]())
        case ast.BoolOp():
            op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield "and and or", changed(node, op=op)
            for i in range(len(node.values)):
                rest = without(node.values, i)
                part = rest[0] if len(rest) == 1 else changed(node, values=rest)
                yield "part of a condition left out", part
        case ast.UnaryOp(op=ast.Not()):
            yield "not removed", node.operand
        case ast.UnaryOp(op=ast.USub()):
            yield "sign dropped", node.operand
        case ast.Constant():
            for value in other_constants(node.value):
                yield "constant", ast.Constant(value)
        case ast.Call():
            if len(node.args) > 1:
                for i in range(len(node.args)):
                    call = changed(node, args=without(node.args, i))
                    yield "argument left out", call
            for i in range(len(node.keywords)):
                call = changed(node, keywords=without(node.keywords, i))
                yield "argument left out", call
            if isinstance(node.func, ast.Attribute) and not node.args:
                if node.func.attr == "copy":
                    yield "copy not made", node.func.value
            elif ast.unparse(node.func) == "copy.deepcopy":
                yield "copy not made", node.args[0]
        case ast.Name() if node.id in TURNED:
            yield "min and max", changed(node, id=TURNED[node.id])
        case ast.Attribute() if node.attr in TURNED:
            yield "min and max", changed(node, attr=TURNED[node.attr])
        case ast.Subscript(slice=ast.Slice()):
            for bound in ("lower", "upper", "step"):
                old = getattr(node.slice, bound)
                others: list[ast.expr | None] = [None]
                if not isinstance(old, ast.Constant):
                    one = ast.Constant(1)
                    others += [ast.BinOp(old, op(), one) for op in (ast.Add, ast.Sub)]
                for other in others if old is not None else []:
                    part = changed(node.slice, **{bound: other})
                    yield "bound of a slice", changed(node, slice=part)


def conditions(node: ast.AST) -> list[ast.expr]:
    """The expressions in ``node`` that decide something."""
    if isinstance(node, (ast.If, ast.While, ast.IfExp)):
        return [node.test]
    return node.ifs if isinstance(node, ast.comprehension) else []


def is_docstring(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def names_a_type(node: ast.stmt) -> bool:
    """`Floats = NDArray[np.float64]`, a type variable, or `__all__`."""
    if not isinstance(node, ast.Assign):
        return False
    of_types = isinstance(node.value, ast.Subscript) or (
        isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "TypeVar"
    )
    return of_types or ast.unparse(node.targets[0]) == "__all__"


class Finder:
    """Collects the mutants of one module."""

    def __init__(self, module: str, source: str) -> None:
        self.module = module
        self.raw = source.encode()
        self.lines = source.splitlines()
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line.encode()))
        self.scope: list[str] = []
        self.living = False
        self.first = self.last = 0
        self.found: list[Mutant] = []
        for node in ast.parse(source).body:
            self.statement(node)

    def add(self, node: Any, kind: str, new: ast.AST | str) -> None:
        start = self.starts[node.lineno - 1] + node.col_offset
        end = self.starts[node.end_lineno - 1] + node.end_col_offset
        old = " ".join(self.raw[start:end].decode().split())
        new = new if isinstance(new, str) else ast.unparse(new)
        if old == new:
            return
        self.found.append(
            Mutant(
                *(self.module, ".".join(self.scope)),
                *(self.lines[node.lineno - 1].strip(), old, new, kind),
                *(start, end, self.first, self.last, self.living),
            )
        )

    def statement(self, node: ast.stmt) -> None:
        """All changes of a statement and of what is in it."""
        body: list[ast.stmt] = getattr(node, "body", [])
        self.first = node.lineno
        self.last = body[0].lineno - 1 if body else (node.end_lineno or node.lineno)
        self.last = max(self.first, self.last)
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Pass():
                return
            case ast.FunctionDef() | ast.ClassDef():
                self.definition(node)
                return
            case ast.Raise(exc=ast.Call(func=ast.Name(id=name) as called)):
                other = "TypeError" if name == "ValueError" else "ValueError"
                self.add(called, "exception", other)
                self.add(node, "statement removed", "pass")
                return
            case ast.Break() | ast.Continue():
                other = "continue" if isinstance(node, ast.Break) else "break"
                self.add(node, "break and continue", other)
            case _ if is_docstring(node) or (not self.scope and names_a_type(node)):
                return
        field = isinstance(node, ast.AnnAssign) and (
            node.value is None or not self.living
        )
        removable = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Delete)
        removable += (ast.Raise, ast.Break, ast.Continue)
        if isinstance(node, removable) and not field and not yields(node):
            self.add(node, "statement removed", "pass")
        if isinstance(node, ast.Return) and node.value is not None:
            self.add(node.value, "nothing returned", "None")
        if isinstance(node, ast.AugAssign) and type(node.op) in ARITHMETIC:
            other = changed(node, op=ARITHMETIC[type(node.op)]())
            self.add(node, "in place", other)
        self.parts(node)

    def definition(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        for decorator in node.decorator_list:
            self.parts(decorator)
            self.expression(decorator)
        if isinstance(node, ast.FunctionDef):
            for default in [*node.args.defaults, *node.args.kw_defaults]:
                if default is not None:
                    self.expression(default)
                    self.parts(default)
        before = self.living
        self.scope.append(node.name)
        self.living = isinstance(node, ast.FunctionDef)
        for each in node.body:
            self.statement(each)
        self.scope.pop()
        self.living = before

    def expression(self, node: ast.AST, above: ast.AST | None = None) -> None:
        none = isinstance(node, ast.Constant) and node.value is None
        if isinstance(node, ast.expr) and not (none and isinstance(above, ast.Compare)):
            for kind, new in expressions(node):
                self.add(node, kind, new)

    def parts(self, node: ast.AST) -> None:
        """All changes of what is below ``node``."""
        for test in conditions(node):
            for value in ("True", "False"):
                self.add(test, "condition", value)
        for name, value in ast.iter_fields(node):
            if name == "annotation":
                continue
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, ast.stmt):
                    self.statement(each)
                elif isinstance(each, ast.ExceptHandler):
                    if each.type is not None:
                        self.add(each.type, "exception", "ZeroDivisionError")
                    for inside in each.body:
                        self.statement(inside)
                elif isinstance(each, ast.AST) and not isinstance(each, ast.JoinedStr):
                    self.expression(each, node)
                    self.parts(each)


def yields(node: ast.stmt) -> bool:
    """Without its `yield` a generator is another kind of function."""
    return any(isinstance(each, ast.Yield) for each in ast.walk(node))


def mutants_of(module: str, source: str) -> list[Mutant]:
    """All mutants of a module, in the order of its source."""
    seen: Counter[tuple[str, ...]] = Counter()
    mutants = []
    for mutant in sorted(Finder(module, source).found, key=lambda m: (m.start, m.end)):
        mutants.append(replace(mutant, nth=seen[mutant.alike]))
        seen[mutant.alike] += 1
    return mutants


def path_of(module: str) -> Path:
    return ROOT / PACKAGE / f"{module}.py"


def file_of(test: str) -> str:
    return f"tests/{test}.py"


def source_of(module: str) -> str:
    return path_of(module).read_text(encoding="utf-8")


# What the tests say of it.


FAILURES: list[str] = []  # of the tests that were run in this process


def say(text: str) -> None:
    """Past pytest, which keeps what is printed."""
    os.write(1, f"{text}\n".encode())


def passed(item: Any, following: Any) -> bool:
    """Run one test in this process."""
    before = len(FAILURES)
    item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
    return len(FAILURES) == before


class Lines:
    """Notes which lines of some files are run, by ``name`` of what runs them."""

    def __init__(self, files: Iterable[str]) -> None:
        self.names: dict[tuple[str, int], set[str]] = defaultdict(set)
        self.local = {file: self.of(file) for file in files}
        self.name = ""

    def __call__(self, frame: FrameType, event: str, value: object) -> Any:
        local = self.local.get(frame.f_code.co_filename)
        return local and local(frame, event, value)

    def of(self, file: str) -> Any:
        def note(frame: FrameType, event: str, value: object) -> Any:
            self.names[file, frame.f_lineno].add(self.name)
            return note

        return note


@dataclass(frozen=True)
class Known:
    """What a run without a change told.

    seconds
        of processor time, for each test; the quickest first.
    names
        the tests that come by a line (file, number); "" for the import of the tests.
    failed
        tests that fail without a change.
    """

    seconds: dict[str, float]
    names: dict[tuple[str, int], set[str]]
    failed: tuple[str, ...]

    @classmethod
    def from_run(cls, items: Sequence[Any], lines: Lines) -> Known:
        """Run all tests in this process."""
        seconds = {}
        sys.settrace(lines)
        for item, following in zip(items, [*items[1:], None], strict=True):
            lines.name = item.nodeid
            start = time.process_time()
            passed(item, following)
            seconds[item.nodeid] = time.process_time() - start
        sys.settrace(None)
        quickest = sorted(seconds, key=lambda name: seconds[name])
        return cls(
            {name: seconds[name] for name in quickest},
            dict(lines.names),
            tuple(FAILURES),
        )

    def tests(self, mutant: Mutant) -> tuple[list[str], bool]:
        """Those to be run, the quickest first; and whether the import comes by, too."""
        file = str(path_of(mutant.module))
        lines = range(mutant.first, mutant.last + 1)
        near = set().union(*(self.names.get((file, line), ()) for line in lines))
        files = [file_of(test) for test in (*TESTS[mutant.module], *ALWAYS)]
        mine = [name for name in self.seconds if name.partition("::")[0] in files]
        if not mutant.living:
            return mine, True
        return [name for name in mine if name in near], "" in near


def in_a_child(work: Any, *arguments: Any) -> Any:
    """What ``work`` returns, done in a fork of this process."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        os.close(reading)
        with os.fdopen(writing, "wb") as file:
            pickle.dump(work(*arguments), file)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        raw = file.read()
    os.waitpid(child, 0)
    return pickle.loads(raw)


def codes(code: CodeType) -> Iterator[CodeType]:
    """``code`` and all code in it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from codes(each)


class Living:
    """The functions of some files that live in this process."""

    def __init__(self, files: Iterable[str]) -> None:
        self.functions: dict[tuple[str, str], list[FunctionType]] = defaultdict(list)
        wanted = set(files)
        for each in gc.get_objects():
            if type(each) is FunctionType and each.__code__.co_filename in wanted:
                code = each.__code__
                self.functions[code.co_filename, code.co_qualname].append(each)

    def put(self, code: CodeType) -> None:
        """Put the functions of a module's ``code`` in the place of the living ones."""
        for each in codes(code):
            where = code.co_filename, each.co_qualname
            for function in self.functions.get(where, ()):
                function.__code__ = each


class Changed(importlib.machinery.SourceFileLoader):
    """Loads a module from another source; a finder of that module alone."""

    def __init__(self, module: str, source: str) -> None:
        name = f"{PACKAGE}.{module.replace('/', '.')}"
        super().__init__(name, str(path_of(module)))
        self.source = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.source, self.path, "exec")

    def find_spec(self, fullname: str, path: object, target: object = None) -> Any:
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self)


def limit(seconds: float) -> None:
    """End this process after so much processor time; later, if it sleeps."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 60 + 20 * seconds)


def limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def quietly() -> None:
    """What this process says goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def judge(items: Sequence[Any], seconds: dict[str, float], killer: Path) -> int:
    """Run the tests of ``seconds`` until one fails: 1, else 0. Its name is written."""
    by_name = {item.nodeid: item for item in items}
    chosen = [by_name[name] for name in seconds]
    for item, following in zip(chosen, [*chosen[1:], None], strict=True):
        limit(SECONDS + 10 * seconds[item.nodeid])
        fine = False
        with suppress(BaseException):  # out of memory within pytest itself, say
            fine = passed(item, following)
        if not fine:
            killer.write_text(item.nodeid, encoding="utf-8")
            return 1
    return 0


def judge_anew(file: Path) -> int:
    """Judge in this process, which has imported nothing yet."""
    module, source, seconds = pickle.loads(file.read_bytes())
    sys.meta_path.insert(0, Changed(module, source))
    limit(60)
    files = sorted({name.partition("::")[0] for name in seconds})
    killer = file.with_suffix(".killer")

    def work(items: Sequence[Any]) -> int:
        return judge(items, seconds, killer)

    status = with_pytest(work, files, file.parent)
    return 1 if status is None else status


class Plugin:
    """Makes pytest collect, and then hands the tests over to ``work``."""

    def __init__(self, work: Any, lines: Lines | None = None) -> None:
        self.work = work
        self.lines = lines
        self.result: Any = None

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            FAILURES.append(report.nodeid)

    def pytest_collection(self) -> None:
        import hypothesis

        hypothesis.settings.load_profile("mutants")  # in place of that of conftest.py
        sys.settrace(self.lines)

    def pytest_collection_finish(self) -> None:
        sys.settrace(None)

    def pytest_runtestloop(self, session: Any) -> bool:
        if not session.testsfailed:
            # Processes that are forked would write into one another's folders.
            wanted = [i for i in session.items if "tmp_path" not in i.fixturenames]
            self.result = self.work(
                [i for i in wanted if i.originalname not in LEFT_OUT]
            )
        return True


def with_pytest(
    work: Any, tests: Sequence[str], folder: Path, lines: Lines | None = None
) -> Any:
    """``work(items)`` once these tests are collected; None where they cannot be."""
    import hypothesis
    import pytest

    hypothesis.settings.register_profile(
        "mutants",
        derandomize=True,
        database=None,
        deadline=None,
        phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    plugin = Plugin(work, lines)
    given = [*PYTEST, f"--rootdir={ROOT}", f"--basetemp={folder}/tests{os.getpid()}"]
    pytest.main([*given, *(str(ROOT / test) for test in tests)], plugins=[plugin])
    return plugin.result


class Run:
    """Judges mutants, ``jobs`` at a time."""

    def __init__(
        self, items: Sequence[Any], known: Known, jobs: int, folder: Path, note: Any
    ) -> None:
        self.items, self.known = items, known
        self.jobs, self.folder, self.note = jobs, folder, note
        self.living = Living(str(path_of(module)) for module in MODULES)
        self.waiting: dict[int, Mutant] = {}
        self.ended: dict[Mutant, str] = {}
        self.kills: Counter[tuple[str, str]] = Counter()  # by function and test

    def child(self, mutant: Mutant) -> int:
        """What a forked process does; its exit status."""
        names, imported = self.known.tests(mutant)
        # First those that noticed most other changes of the function, then those in
        # the file of the module.
        parts = mutant.module.split("/")

        def rank(name: str) -> tuple[int, bool]:
            file = name.partition("::")[0].rpartition("/")[2]
            mine = any(part in file for part in parts)
            return -self.kills[mutant.function, name], not mine

        names.sort(key=rank)
        seconds = {name: self.known.seconds[name] for name in names}
        file = self.folder / str(os.getpid())
        source = mutant.source(source_of(mutant.module))
        code = compile(source, str(path_of(mutant.module)), "exec")
        if mutant.living:
            # Not where a function that lives closes over other names.
            with suppress(ValueError):
                self.living.put(code)
                killer = file.with_suffix(".killer")
                if judge(self.items, seconds, killer) or not imported:
                    return int(killer.exists())
        file.write_bytes(pickle.dumps((mutant.module, source, seconds)))
        return os.execv(sys.executable, [sys.executable, __file__, "--anew", str(file)])

    def start(self, mutant: Mutant) -> None:
        if child := os.fork():
            self.waiting[child] = mutant
            return
        status = 2
        try:
            quietly()
            limit_memory()
            status = self.child(mutant)
        finally:
            os._exit(status)

    def wait(self) -> None:
        child, status = os.wait()
        mutant = self.waiting.pop(child)
        if os.WIFSIGNALED(status):
            late = os.WTERMSIG(status) in (signal.SIGPROF, signal.SIGALRM)
            how = "timeout" if late else "killed"
        else:
            how = {0: "survived", 1: "killed"}.get(os.WEXITSTATUS(status), "trouble")
        if how == "trouble":
            raise RuntimeError(f"no verdict: {as_text(mutant.key)}")
        killer = self.folder / f"{child}.killer"
        if killer.exists():
            self.kills[mutant.function, killer.read_text(encoding="utf-8")] += 1
        self.ended[mutant] = how
        self.note(mutant, how)
        if len(self.ended) % 100 == 0:
            say(f"{len(self.ended)} are judged")

    def all(self, mutants: Sequence[Mutant]) -> dict[Mutant, str]:
        """How each ended: "killed", "timeout" (by the limit of time), "survived"."""
        for mutant in mutants:
            while len(self.waiting) >= self.jobs:
                self.wait()
            self.start(mutant)
        while self.waiting:
            self.wait()
        return self.ended


def run(mutants: Sequence[Mutant], jobs: int, note: Any) -> dict[Mutant, str] | None:
    """How each ended; None where tests fail without a change, which is said.

    ``note(mutant, how)`` is called as soon as one has ended.
    """
    lines = Lines(str(path_of(module)) for module in MODULES)
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name)

        def work(items: Sequence[Any]) -> dict[Mutant, str] | None:
            start = time.monotonic()
            known = in_a_child(Known.from_run, items, lines)
            if known.failed:
                say("Without a change, these tests must pass:")
                say("\n".join(known.failed))
                return None
            seconds = time.monotonic() - start
            say(f"{len(items)} tests pass without a change ({seconds:.0f} s)")
            return Run(items, known, jobs, folder, note).all(mutants)

        tests = sorted({*map(file_of, chain(ALWAYS, *TESTS.values()))})
        return with_pytest(work, tests, folder, lines)


# What is told.


def same(mutant: Mutant) -> dict[str, Any]:
    """What tells ``mutant`` from all others, for files."""
    told: dict[str, Any] = {
        "module": mutant.module,
        "function": mutant.function,
        "line": mutant.line,
        "old": mutant.old,
        "new": mutant.new,
    }
    return {**told, "nth": mutant.nth} if mutant.nth else told


def key_of(told: dict[str, Any]) -> tuple[Any, ...]:
    fields = ("module", "function", "line", "old", "new")
    return (*(told[field] for field in fields), told.get("nth", 0))


def explained(path: Path = SURVIVORS) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The survivors that have a reason, by what tells them apart."""
    listed = tomllib.loads(path.read_text(encoding="utf-8")).get("survivor", [])
    by_key = {key_of(each): each for each in listed}
    if len(by_key) < len(listed):
        twice = [key for key, n in Counter(map(key_of, listed)).items() if n > 1]
        raise ValueError(f"listed twice in {path.name}: {twice}")
    return by_key


def digest(mutants: Iterable[Mutant]) -> str:
    """Of all fragments that are changed: docstrings and comments do not count."""
    fragments = [f"{mutant.function}\n{mutant.old}\n" for mutant in mutants]
    return hashlib.sha256("".join(fragments).encode()).hexdigest()


def report(
    ended: dict[Mutant, str],
    reasons: dict[tuple[Any, ...], dict[str, Any]],
    before: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What is written of these mutants, and of the modules that only ``before`` has.

    "killed" counts all that were noticed, "timeouts" those of them that ran too long.
    "score" is the part that was noticed; "score_without_equivalents" leaves out those
    that no test can tell from the code as it is.
    """
    before = before or {"modules": {}, "survivors": []}
    modules: dict[str, dict[str, Any]] = {}
    survivors = []
    for module in MODULES:
        of_it = {m: how for m, how in ended.items() if m.module == module}
        if not of_it:
            if module in before["modules"]:
                modules[module] = before["modules"][module]
                kept = before["survivors"]
                survivors += [each for each in kept if each["module"] == module]
            continue
        how = Counter(of_it.values())
        kinds = Counter(mutant.kind for mutant in of_it)
        modules[module] = {
            "mutants": len(of_it),
            "killed": how["killed"] + how["timeout"],
            "timeouts": how["timeout"],
            "survived": how["survived"],
            "operators": dict(sorted(kinds.items())),
            "sha256": digest(of_it),
        }
        for mutant in of_it:
            if of_it[mutant] == "survived":
                known = reasons.get(mutant.key, {})
                why = {key: known.get(key) for key in ("equivalent", "reason")}
                survivors.append({**same(mutant), **why})
    counts = ("mutants", "killed", "timeouts", "survived")
    found: dict[str, Any] = {
        key: sum(each[key] for each in modules.values()) for key in counts
    }
    equivalent = sum(bool(each["equivalent"]) for each in survivors)
    mutants, killed = found["mutants"], found["killed"]
    return {
        **found,
        "equivalent": equivalent,
        "score": round(killed / mutants, 4),
        "score_without_equivalents": round(killed / (mutants - equivalent), 4),
        "modules": modules,
        "survivors": survivors,
    }


def misfits(found: dict[str, Any], reasons: Iterable[tuple[Any, ...]]) -> list[str]:
    """Survivors without a reason, and reasons without a survivor, as text."""
    survivors = {key_of(each) for each in found["survivors"]}
    said = [f"survives: {as_text(key)}" for key in survivors - set(reasons)]
    for key in set(reasons) - survivors:
        if key[0] in found["modules"]:
            said.append(f"listed, but no survivor: {as_text(key)}")
    return sorted(said)


def as_text(key: tuple[Any, ...]) -> str:
    module, function, line, old, new, nth = key
    more = f" ({nth + 1})" if nth else ""
    return f"{module}: {function}\n    {line}\n    {old}\n    -> {new}{more}"


def earlier(path: Path) -> dict[tuple[Any, ...], str]:
    """How mutants ended by this file, one a line."""
    if not path.exists():
        return {}
    lines = path.read_text(encoding="utf-8").splitlines()
    return {key_of(each): each["ended"] for each in map(json.loads, lines)}


def chosen(modules: Sequence[str], where: str) -> list[Mutant]:
    """The mutants of these modules (a part of the name is enough), all for none."""
    return [
        mutant
        for module in MODULES
        if not modules or any(part in module for part in modules)
        for mutant in mutants_of(module, source_of(module))
        if where in mutant.function
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("modules", nargs="*", help="parts of their names; none: all")
    parser.add_argument(
        "--where", default="", metavar="TEXT", help="only functions with this in them"
    )
    parser.add_argument("--list", action="store_true", help="list the mutants, no more")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FILE.json",
        help="what it says of modules that are not judged now, it keeps",
    )
    parser.add_argument(
        "--state",
        type=Path,
        metavar="FILE",
        help="a run can be taken up again: those killed by this file are left out, "
        "and what comes out is added to it",
    )
    parser.add_argument("--anew", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.anew is not None:
        return judge_anew(options.anew)
    mutants = chosen(options.modules, options.where)
    if not mutants:
        parser.error("no mutants there")
    if options.where and options.report:
        parser.error("a report is of whole modules: leave out --where or --report")
    if options.list:
        print("\n".join(as_text(mutant.key) for mutant in mutants))
        return 0
    reasons = explained()
    known = earlier(options.state) if options.state else {}
    left = [m for m in mutants if known.get(m.key, "survived") == "survived"]
    print(f"{len(left)} of {len(mutants)} mutants are to be judged", flush=True)

    def note(mutant: Mutant, how: str) -> None:
        if options.state:
            with options.state.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**same(mutant), "ended": how}) + "\n")

    ended = run(left, options.jobs, note)
    if ended is None:
        return 2
    known |= {mutant.key: how for mutant, how in ended.items()}
    before = None
    if options.report and options.report.exists():
        before = json.loads(options.report.read_text(encoding="utf-8"))
    now = {mutant: known[mutant.key] for mutant in mutants}
    found = report(now, reasons, before)
    wrong = misfits(found, reasons)
    print("\n".join(wrong) or "All survivors are explained.")
    print(
        f"{found['killed']} of {found['mutants']} mutants were noticed "
        f"({found['score']:.1%}), {found['timeouts']} of them by the limit of time"
    )
    if options.report:
        text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
        options.report.write_text(text, encoding="utf-8")
    return int(bool(wrong))


if __name__ == "__main__":
    os.environ |= {
        "OPENBLAS_NUM_THREADS": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": str(ROOT),
    }
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
