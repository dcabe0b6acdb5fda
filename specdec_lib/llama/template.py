"""Chat templates: programs that come with a file of weights, from anyone.

They are run in the sandbox of ``jinja2``, which lets them reach nothing outside. It
does not stop one that never ends or fills the memory; here every turn of a loop, every
call and every text that is made is counted, and there is an end to them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from time import monotonic
from typing import Any, cast

from jinja2 import nodes, pass_context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

LONGEST = 1 << 17  # characters of a template; the longest known have some 2^14
MOST = 1 << 24  # characters that it may make on the way, all together
SECONDS = 5.0
STEP, ENTRY = 64, 16  # what a turn, a call and an entry of a list count as
LARGEST = 1 << 20  # a whole number given to a method or filter, as a width
BITS = 1 << 12  # of a power
REPEATS = frozenset({"indent", "join", "replace", "wordwrap"})  # one text in another
WIDTH = re.compile(r"\d{4}|\*|\{[^}]*\{")  # of a format


class Refusal(ValueError):
    """What a chat template says itself of messages that it will not have."""


class TooMuch(ValueError):
    """A template that takes too long or makes too much."""


def render(template: str, **values: Any) -> str:
    """The text that a template makes of these values.

    ValueError where it fails or refuses, is longer than 2^17 characters, makes more
    than 2^24 or takes more than 5 seconds. Its message begins with ``messages``.
    """
    try:
        if len(template) > LONGEST:
            raise TooMuch(f"it has {len(template)} characters")
        environment = _Bounded()
        program = environment.parse(template)
        _Counting().visit(program)
        code = environment.compile(program)
        made = environment.template_class.from_code(
            environment, code, environment.make_globals(None)
        )
        return str(made.render(**values))
    except Refusal:
        raise
    except Exception as error:  # a template is a program: whatever goes wrong in it
        said = f"{error!s:.300}"
        raise ValueError(f"messages: the chat template fails: {said}") from error


class _Bounded(ImmutableSandboxedEnvironment):
    """What one template may do, and what is left of it."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, finalize=_finalize)
        self.left = MOST
        self.until = monotonic() + SECONDS
        self.filters = {
            name: self._watched(name, each)
            for name, each in self.filters.items()
            if name != "urlize"
        }
        del self.globals["lipsum"]
        self.globals["raise_exception"] = _refuse
        self.globals["strftime_now"] = lambda form: datetime.now().strftime(form)

    def spend(self, amount: int) -> None:
        """TooMuch where this is more than is left."""
        self.left -= amount
        if self.left < 0:
            raise TooMuch(f"it makes more than {MOST} characters, or does not end")
        if monotonic() > self.until:
            raise TooMuch(f"it takes more than {SECONDS:g} seconds")

    def size(self, value: object) -> int:
        """What a value counts as; TooMuch where that is more than is left."""
        waiting, total = [value], 0
        while waiting:
            each = waiting.pop()
            if isinstance(each, str | bytes):
                total += len(each)
            elif isinstance(each, list | tuple):
                total += ENTRY * len(each)
                waiting += each
            elif isinstance(each, Mapping):
                total += 2 * ENTRY * len(each)
                waiting += [*each, *each.values()]
            if total > self.left:
                raise TooMuch(f"it makes more than {MOST} characters, or does not end")
        return total

    def afford(self, name: str, given: list[Any]) -> None:
        """Pay for a call of a method or filter; TooMuch where it may make too much."""
        sizes = [self.size(each) for each in given]
        cost = sum(sizes)
        for each, size in zip(given[1:], sizes[1:], strict=True):
            if isinstance(each, int):
                if abs(each) > LARGEST:
                    raise TooMuch(f"it gives {name} the number {each:.3g}")
                cost *= max(1, abs(each))
            elif name in REPEATS:
                cost *= max(1, size)
        if cost > MOST:
            raise TooMuch(f"{name} may make more than {MOST} characters")
        self.spend(STEP)

    def _watched(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        """A filter that is paid for, before and after."""

        @functools.wraps(act)
        def watched(*given: Any, **named: Any) -> Any:
            plain = given[1:] if hasattr(act, "jinja_pass_arg") else given
            if name == "format":
                _check_form(str(given[0]))
            self.afford(name, [*plain, *named.values()])
            result = act(*given, **named)
            self.spend(self.size(result))
            return result

        return watched

    def call(self, context: Any, obj: Any, *given: Any, **named: Any) -> Any:
        owner = getattr(obj, "__self__", None)
        name = getattr(obj, "__name__", "")
        if isinstance(owner, str | list | tuple | dict):
            self.afford(name, [owner, *given, *named.values()])
        else:
            self.spend(STEP)
        result = super().call(context, obj, *given, **named)
        if not isinstance(result, _Turns):
            self.spend(self.size(result))
        return result

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        numbers = isinstance(left, int) and isinstance(right, int)
        if operator == "+":
            self.spend(STEP + self.size([left, right]))
        elif operator == "%" and isinstance(left, str):
            _check_form(left)
            self.spend(STEP + self.size([left, right]))
        elif operator == "*" and not numbers:
            for text, times in ((left, right), (right, left)):
                if isinstance(times, int):
                    self.spend(STEP + self.size(text) * max(times, 0))
        elif numbers and operator in ("*", "**"):
            a, b = left.bit_length(), right.bit_length()
            bits = a + b if operator == "*" else a * min(abs(right), BITS + 1)
            if bits > BITS:
                raise TooMuch("it makes a number of too many digits")
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Any:
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:
            _check_form(str(value.__self__))
        return wrapped

    # What the changed template calls; see _Counting.

    def turns(self, items: Any) -> _Turns:
        return _Turns(self, items)

    def joined(self, *parts: Any) -> str:
        self.spend(sum(map(self.size, parts)))
        return "".join(map(str, parts))

    def cut(self, part: Any) -> Any:  # paid for as what a call returns
        return part

    def said(self, text: str) -> str:
        return text


class _Turns:
    """What a loop goes over, each turn counted."""

    def __init__(self, environment: _Bounded, items: Any) -> None:
        self._environment, self._items = environment, items

    def __iter__(self) -> Iterator[Any]:
        for item in self._items:
            self._environment.spend(STEP)
            yield item

    def __len__(self) -> int:
        return len(self._items)


class _Counting(NodeTransformer):
    """Loops, texts, parts and ``~`` of a template, by methods of the environment."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = _asked("turns", cast(nodes.Expr, node.iter))
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _asked("joined", *node.nodes)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        return _asked("cut", node) if isinstance(node.arg, nodes.Slice) else node

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:
        return _asked("said", nodes.Const(node.data, lineno=node.lineno))


def _asked(method: str, *given: nodes.Expr) -> nodes.Call:
    line = given[0].lineno
    what = nodes.EnvironmentAttribute(method, lineno=line)
    return nodes.Call(what, list(given), [], None, None, lineno=line)


@pass_context
def _finalize(context: Any, value: Any) -> Any:
    """What is put out is paid for; so it is never worked out beforehand either."""
    environment = context.environment
    environment.spend(environment.size(value))
    return value


def _refuse(message: str) -> None:
    raise Refusal(f"messages: the chat template refuses them: {message!s:.300}")


def _check_form(form: str) -> None:
    if WIDTH.search(form):
        raise TooMuch("it formats with a width of four digits or more")
