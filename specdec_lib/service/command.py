"""``specdec serve``: its flags, and what they set."""

from __future__ import annotations

import argparse
import logging
import math
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from .settings import Settings

if TYPE_CHECKING:
    from .hooks import Hooks

# Flag, kind, name of the setting, what it says.
FLAGS: tuple[tuple[str, type, str, str], ...] = (
    ("--workers-in-flight", int, "workers", "requests decoded at the same time"),
    ("--queue", int, "queue", "requests that may wait; 429 beyond"),
    ("--deadline", float, "deadline", "seconds for a request; what there is then is "
     "the answer"),
    ("--grace", float, "grace", "seconds for running requests at shutdown"),
    ("--max-body", int, "body_bytes", "bytes of a request"),
    ("--max-body-seconds", float, "body_seconds", "seconds for a body to arrive"),
    ("--max-prompt-characters", int, "prompt_characters", "characters of a prompt"),
    ("--max-prompt-tokens", int, "prompt_tokens", "tokens of a prompt"),
    ("--max-new-tokens", int, "new_tokens", "tokens that a request may ask for"),
    ("--max-k", int, "k", "guesses a round that a request may ask for"),
    ("--max-stops", int, "stops", "stop strings of a request"),
    ("--max-stop-characters", int, "stop_characters", "characters of a stop string"),
    ("--max-connections", int, "connections", "open connections"),
)  # fmt: skip


def add(commands: Any) -> None:
    """Add ``serve`` to the commands."""
    defaults = {field.name: field.default for field in fields(Settings)}
    parser = commands.add_parser(
        "serve",
        help="answer requests over HTTP",
        description="Answer requests over HTTP: POST /generate, /v1/completions and "
        "/v1/chat/completions; GET /v1/models, /health, /ready, /metrics and "
        "/openapi.json. Without --model with the book's n-gram models. SIGTERM stops "
        "it after the requests it has.",
    )
    parser.set_defaults(command=serve, about=parser.format_help)
    parser.add_argument(
        "--host", default="127.0.0.1", metavar="HOST", help="(127.0.0.1)"
    )
    parser.add_argument(
        "--port",
        type=int,
        default=8000,
        metavar="N",
        help="(8000); 0: any that is free",
    )
    parser.add_argument(
        "--model",
        metavar="MODEL",
        help="made by specdec train; or a real model: smollm2, a GGUF file, or for "
        "transformers a folder or a Hugging Face name",
    )
    parser.add_argument(
        "--name", metavar="NAME", help="what requests call the model (from --model)"
    )
    parser.add_argument(
        "--compiled", action="store_true", help="a real model by the compiled kernel"
    )
    parser.add_argument(
        "--k", type=int, metavar="K", help="guesses a round, where a request does not "
        "say (4; with a real model as many as pay)",
    )  # fmt: skip
    for flag, kind, name, text in FLAGS:
        parser.add_argument(
            flag, type=kind, metavar="N", dest=f"set_{name}", default=defaults[name],
            help=f"{text} ({defaults[name]})",
        )  # fmt: skip
    watch = parser.add_argument_group("watching it")
    watch.add_argument(
        "--otlp",
        metavar="URL",
        help="send OpenTelemetry spans to a collector there, as to "
        "http://localhost:4318 (where OTEL_EXPORTER_OTLP_ENDPOINT says, if anywhere)",
    )
    watch.add_argument(
        "--log-text", action="store_true", help="prompts and answers in the log too"
    )
    faults = parser.add_argument_group("faults of draft and target")
    faults.add_argument(
        "--breaker-failures", type=int, default=5, metavar="N",
        help="failures in a row after which a part is left alone (5)",
    )  # fmt: skip
    faults.add_argument(
        "--breaker-seconds", type=float, default=30.0, metavar="S",
        help="for how long, before one request may try it (30)",
    )  # fmt: skip
    for part, then in (("draft", "go on without it"), ("target", "answer 503")):
        faults.add_argument(
            f"--{part}-seconds", type=float, metavar="S",
            help=f"{then} where one call of the {part} takes longer (no limit; with "
            "one, calls are made in a second thread, which costs a little)",
        )  # fmt: skip
    faults.add_argument(
        "--draft-only-when-target-fails",
        action="store_true",
        help="let the draft answer alone then, and mark each such answer",
    )


def settings_of(options: argparse.Namespace, name: str) -> Settings:
    """The settings that the flags make; ValueError names what is out of range."""
    if options.name == "":
        raise ValueError("name must not be empty")
    chosen = {setting: getattr(options, f"set_{setting}") for _, _, setting, _ in FLAGS}
    try:
        return Settings(name=options.name or name, **chosen)
    except ValueError as error:
        what, _, rest = str(error).partition(" ")
        flags = {setting: flag for flag, _, setting, _ in FLAGS}
        raise ValueError(f"{flags[what]} {rest}") from None


def serve(
    options: argparse.Namespace, progress: Callable[[str], None] = lambda what: None
) -> None:
    """Load the model, then serve it until the process is asked to stop."""
    most = settings_of(options, "model").k  # said before the work, not after it
    if options.k is not None and not 0 <= options.k <= most:
        raise ValueError(f"k must be inside 0 .. {most} (--max-k), got {options.k}")
    if options.breaker_failures < 1:
        raise ValueError(
            f"breaker_failures must be 1 or more, got {options.breaker_failures}"
        )
    if not 0 < options.breaker_seconds < math.inf:
        raise ValueError(
            "breaker_seconds must be finite and more than 0, "
            f"got {options.breaker_seconds}"
        )
    if not 0 <= options.port < 1 << 16:
        raise ValueError(f"port must be inside 0 .. 65535, got {options.port}")
    try:
        from . import breakers, logs, metrics, process, watching

        traced: list[Hooks] = []
        if watching.spans_wanted(options.otlp):
            from . import tracing

            traced.append(tracing.Tracing(tracing.exporter(options.otlp)))
    except ImportError as error:
        raise ImportError(
            f"this needs {error.name}: pip install 'specdec_lib[serve]'",
            name=error.name,
        ) from error
    from .models import load_engine

    faults = breakers.Faults(
        options.breaker_failures,
        options.breaker_seconds,
        draft_seconds=options.draft_seconds,
        target_seconds=options.target_seconds,
        draft_only=options.draft_only_when_target_fails,
    )
    with process.listen(options.host, options.port) as listening:  # before the work
        progress("reading the model")
        name, engine = load_engine(
            options.model, compiled=options.compiled, k=options.k
        )
        progress("")
        settings = settings_of(options, name)
        if faults.draft_only and not breakers.is_model(engine.draft):
            raise ValueError(
                "--draft-only-when-target-fails needs a draft that is a language model"
            )
        hooks: list[Hooks] = [
            logs.RequestLog(with_text=options.log_text),
            metrics.Prometheus(faults),
            *traced,
            faults,  # innermost: the others see what it makes of a failure
        ]
        logs.configure(sys.stderr)
        host, port = listening.getsockname()[:2]
        host = f"[{host}]" if ":" in host else host
        logger = logging.getLogger("specdec.service")
        logger.info("%s at http://%s:%d", settings.name, host, port)
        process.run(engine, settings, listening, hooks)
