"""Decoding at each move of a slider, by the kernel behind the page."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import traitlets

from ..decoding import stream
from ..drafts import Draft, ModelDraft
from ..metrics import Metrics, Round
from ..models import LanguageModel
from ..sampling import Sampler
from ._base import Sliders, page_script, position, slider
from .restart import Latest

TEMPERATURES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0)


class Speaker(Protocol):
    """A model and its tokenizer, such as a :class:`specdec_lib.pair.Pair`."""

    @property
    def target(self) -> LanguageModel: ...

    @property
    def tokenizer(self) -> Any: ...


@dataclass
class Run:
    """A decoding under way."""

    k: int
    temperature: float
    rounds: list[Round] = field(default_factory=list)
    tokens: list[tuple[int, str]] = field(default_factory=list)  # and what each is
    seconds: float = 0.0

    def add(self, round: Round, seconds: float) -> None:
        self.rounds.append(round)
        self.seconds += seconds
        for place, token in enumerate(round.emitted):
            if place < round.accepted:
                kind = "accepted"
            elif not self.k:
                kind = "plain"
            else:
                kind = "bonus" if place == len(round.drafted) else "correction"
            self.tokens.append((token, kind))

    def describe(self) -> str:
        """What it brought, in a sentence or two."""
        metrics = Metrics.from_rounds(self.rounds)
        text = (
            f"k = {self.k}, T = {self.temperature:g}: {metrics.emitted} tokens by "
            f"{metrics.target_calls} calls of the target"
        )
        if metrics.tokens_per_call is not None:
            text += f", {metrics.tokens_per_call:.2f} tokens per call"
        if metrics.acceptance_rate is not None:
            text += f"; {metrics.acceptance_rate:.0%} of the tested guesses accepted"
        return text + "."


class LiveDecoding(Sliders):
    """What :func:`live` returns.

    tokens
        what is shown: the text of each token, and what it is ("accepted", ...).
    summary
        its figures in a sentence.
    """

    _esm = page_script("tokens.js", "live.js")
    note = traitlets.Unicode().tag(sync=True)
    prompt = traitlets.Unicode().tag(sync=True)
    tokens = traitlets.List(traitlets.List(traitlets.Unicode())).tag(sync=True)
    summary = traitlets.Unicode().tag(sync=True)
    progress = traitlets.Unicode().tag(sync=True)

    def __init__(
        self,
        pair: Speaker,
        prompt: str,
        stops: tuple[Sequence[int], Sequence[float]],
        indices: list[int],
        max_new_tokens: int,
        seed: int,
        draft: Callable[[Sampler], Draft],
        stop_ids: Sequence[int],
        **options: Any,
    ) -> None:
        self._pair, self._stops = pair, stops
        self._draft, self._stop_ids = draft, stop_ids
        self._max_new_tokens, self._seed = max_new_tokens, seed
        self._ids = pair.tokenizer.encode(prompt).tolist()
        ks, temperatures = stops
        k, temperature = ks[indices[0]], temperatures[indices[1]]
        run = Run(k, temperature)
        for run in self._decode(k, temperature):  # noqa: B007
            pass
        super().__init__(
            sliders=[
                slider("Draft length k", ks, str),
                slider("Temperature T", temperatures, "{:g}".format),
            ],
            indices=indices,
            prompt=prompt,
            tokens=self._pieces(run),
            summary=run.describe(),
            note=(
                "These sliders need Python behind the page: run this chapter in "
                "JupyterLab to move them. What stands here was decoded beforehand, "
                f"with k = {k} and T = {temperature:g}."
            ),
        )
        self._latest = Latest(self._decode, self._show, self._fail, **options)
        self.observe(self._moved, "indices")
        self.on_msg(self._greeted)

    def _moved(self, change: Any) -> None:
        ks, temperatures = self._stops
        k, temperature = self.indices
        self._latest.wish(ks[k], temperatures[temperature])

    def _greeted(self, widget: Any, content: Any, buffers: Any) -> None:
        """The page asks whether there is a kernel."""
        if isinstance(content, dict) and content.get("kind") == "hello":
            self.send({"kind": "ready"})

    def _decode(self, k: int, temperature: float) -> Generator[Run, None, None]:
        """One step is one round."""
        run = Run(k, temperature)
        sampler = Sampler(temperature=temperature)
        rounds = stream(
            self._pair.target,
            self._ids,
            draft=self._draft(sampler),
            k=k,
            max_new_tokens=self._max_new_tokens,
            sampler=sampler,
            stop_ids=self._stop_ids,
            seed=self._seed,
        )
        started = time.perf_counter()
        for round in rounds:
            run.add(round, time.perf_counter() - started)
            yield run
            started = time.perf_counter()

    def _pieces(self, run: Run) -> list[list[str]]:
        pieces = self._pair.tokenizer.pieces([token for token, _ in run.tokens])
        kinds = [kind for _, kind in run.tokens]
        return [list(pair) for pair in zip(pieces, kinds, strict=True)]

    def _show(self, run: Run | None, done: bool) -> None:
        if run is None:
            return
        with self.hold_sync():
            self.tokens = self._pieces(run)
            if done:
                self.progress = f"Decoded in {1000 * run.seconds:.0f} ms."
                self.summary = run.describe()
            else:
                self.progress = f"{len(run.tokens)} tokens …"

    def _fail(self, error: Exception) -> None:
        self.progress = ""
        self.summary = f"Decoding failed: {error}"

    def close(self) -> None:
        """Stop what is under way and take the widget from the page."""
        if hasattr(self, "_latest"):
            self._latest.cancel()
        super().close()


def live(
    pair: Any,
    prompt: str,
    *,
    ks: Sequence[int] = tuple(range(13)),
    temperatures: Sequence[float] = TEMPERATURES,
    start: tuple[int, float] = (4, 1.0),
    max_new_tokens: int = 200,
    seed: int = 1,
    draft: Callable[[Sampler], Draft] | None = None,
    stop_ids: Sequence[int] = (),
    **options: Any,
) -> LiveDecoding:
    """Two sliders that decode ``prompt`` anew at each move, with a kernel.

    pair
        target, draft and tokenizer, as of ``specdec_lib.pair.book_pair()``. Its draft
        is not looked at where ``draft`` is given.
    ks, temperatures
        the stops of the sliders, at least two each; ``start`` is where they begin.
    max_new_tokens, seed
        as in ``specdec_lib.generate``: the text is what that gives for the same
        arguments, with the temperature for the target and for the draft.
    draft
        sampler -> what guesses; None: the pair's draft model, with that sampler.
    stop_ids
        tokens that end the text.
    options
        ``delay``, ``pause_every``, ``clock``, ``sleep`` of :class:`.restart.Latest`.

    The decoding runs in pieces on the kernel's event loop. A move while it runs ends it
    at its next round and begins anew within about 50 ms; nothing runs in a thread. The
    kernel must be idle: while another cell runs, moves wait.

    On a page without a kernel the sliders are disabled and a note says so, beside the
    text for ``start``, which is decoded here and now.
    """
    ks, temperatures = list(ks), list(temperatures)
    indices = [
        position("ks", ks, start[0]),
        position("temperatures", temperatures, start[1]),
    ]
    for k in ks:
        if k < 0:
            raise ValueError(f"ks must be 0 or more, got {k}")
    for temperature in temperatures:
        Sampler(temperature=temperature)  # says what is wrong with it
    if draft is None:
        model = pair.draft

        def draft(sampler: Sampler) -> Draft:
            return ModelDraft(model, sampler)

    stops = ks, temperatures
    return LiveDecoding(
        *(pair, prompt, stops, indices, max_new_tokens, seed, draft, stop_ids),
        **options,
    )
