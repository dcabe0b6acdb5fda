"""The prompts on which the real model is measured, written for this book.

Half of them are grounded: the answer repeats much of what was asked, as when typos are
mended or a text is put into another form. Half are open: a story, an explanation,
advice, a poem, code. They lie in data/prompts/prompts.toml.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from .files import AnyPath, read_all

KINDS = ("grounded", "open")


@dataclass(frozen=True)
class Prompt:
    """One request.

    name
        of its own, short.
    kind
        "grounded" or "open".
    task
        what is asked for: "fix typos", "poem", ..
    text
        the request.
    example
        None, or a request of the same kind and its answer, which go before it: a small
        model follows an example better than a rule.
    """

    name: str
    kind: str
    task: str
    text: str
    example: tuple[str, str] | None = None

    @property
    def messages(self) -> list[dict[str, str]]:
        """The conversation so far, as a chat template takes it.

        >>> Prompt("a", "open", "poem", "A poem, please.").messages
        [{'role': 'user', 'content': 'A poem, please.'}]
        """
        texts = [*(self.example or ()), self.text]
        roles = ("user", "assistant", "user")
        return [
            {"role": role, "content": text}
            for role, text in zip(roles, texts, strict=False)
        ]


def load_prompts(kind: str | None = None) -> tuple[Prompt, ...]:
    """All prompts that ship, or those of one kind; names are unique.

    ValueError for a kind that there is not.

    >>> {prompt.kind for prompt in load_prompts()} == set(KINDS)
    True
    """
    if kind is not None and kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    file = resources.files("specdec_lib") / "data" / "prompts" / "prompts.toml"
    entries = tomllib.loads(file.read_text(encoding="utf-8"))["prompt"]
    prompts = tuple(_prompt(**entry) for entry in entries)
    return tuple(each for each in prompts if kind in (None, each.kind))


def read_prompts(path: AnyPath) -> tuple[Prompt, ...]:
    """Prompts of your own, from a UTF-8 file.

    A file whose name ends in .toml is read as the one that ships, where ``name``,
    ``kind`` and ``task`` may be missing; any other holds one prompt a line. Raises
    ValueError for a file without prompts, and for one that cannot be read so.
    """
    try:
        content = read_all(path).decode("utf-8-sig")
        if Path(path).suffix == ".toml":
            entries = tomllib.loads(content)["prompt"]
        else:
            lines = (line.strip() for line in re.split("\r\n|\r|\n", content))
            entries = [{"text": line} for line in lines if line]
        unsaid = {"kind": "open", "task": ""}
        prompts = tuple(
            _prompt(**{"name": str(i), **unsaid, **entry})
            for i, entry in enumerate(entries, 1)
        )
    except RecursionError:
        raise ValueError(f"{path} holds no prompts: it is nested too deeply") from None
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise ValueError(
            f"{path} holds no prompts that can be read: {error}"
        ) from error
    if not prompts:
        raise ValueError(f"{path} must hold at least one prompt, got none")
    return prompts


def _prompt(
    name: str, kind: str, task: str, text: str, example: tuple[str, str] | None = None
) -> Prompt:
    """From the file, where texts stand between line ends."""
    pair = None if example is None else (example[0].strip(), example[1].strip())
    return Prompt(name, kind, task, text.strip(), pair)
