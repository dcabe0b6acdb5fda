"""The prompts on which the real model is measured, written for this book.

Half of them are grounded: the answer repeats much of what was asked, as when typos are
mended or a text is put into another form. Half are open: a story, an explanation,
advice, a poem, code. They lie in data/prompts/prompts.toml.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources

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


def _prompt(
    name: str, kind: str, task: str, text: str, example: tuple[str, str] | None = None
) -> Prompt:
    """From the file, where texts stand between line ends."""
    pair = None if example is None else (example[0].strip(), example[1].strip())
    return Prompt(name, kind, task, text.strip(), pair)
