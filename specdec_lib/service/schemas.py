"""What a request may say, and the task that it becomes.

The bounds that stand here hold everywhere; those that an operator sets are in
:class:`~.settings.Settings`, and are checked when the task is made.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from ..sampling import Sampler
from ..verification import Verify, verify_tokens
from ..verification.lossy import probability_threshold
from .errors import Invalid
from .settings import Settings

HUGE = 1_000_000_000
NEW_TOKENS = 64  # where a request does not say
OPENAI_NEW_TOKENS = 16  # the same, as OpenAI's completions have it
MOST_FIELDS = 100  # of an object
NAMED = 8  # fields that one refusal names at most
NAME = 64  # characters of a name, of one that is not ours


@dataclass(frozen=True)
class Task:
    """A request, checked, in the library's terms."""

    prompt: str | list[dict[str, str]]
    max_new_tokens: int
    k: int | None
    sampler: Sampler
    rule: str
    tau: float | None
    verify: Verify
    stop: tuple[str, ...]
    seed: int
    seconds: float
    stream: bool

    fields: dict[str, str]  # the library's names of arguments, and the request's

    @property
    def exact(self) -> bool:
        """Whether the answer has the target's own distribution."""
        return self.rule == "exact"


Count = Annotated[int, Field(ge=0, le=HUGE)]
Positive = Annotated[int, Field(ge=1, le=HUGE)]
Rule = Literal["exact", "threshold"]
# Read up to the first that is no string; each of them would cost a complaint.
Strings = Annotated[list[str], Field(fail_fast=True)]


class _Body(BaseModel):
    # Strict: no number in a string, no true for 1. No field that is not known.
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _given(cls, data: Any) -> Any:
        """A field that is null is one that is not there. Far too many fields are
        refused before each of them costs a complaint."""
        if not isinstance(data, dict):
            return data
        if len(data) > MOST_FIELDS:
            raise PydanticCustomError(
                "too_many", f"it must have at most {MOST_FIELDS} fields"
            )
        return {
            name: value
            for name, value in data.items()
            if value is not None or name not in cls.model_fields
        }


class _Sampling(_Body):
    """What every endpoint takes."""

    temperature: float = Field(
        1.0, ge=0, le=1000, description="0 takes the most probable token each time."
    )
    top_k: Positive | None = Field(None, description="Keep so many tokens.")
    top_p: float | None = Field(None, gt=0, le=1, description="Nucleus sampling.")
    k: Count | None = Field(None, description="Most guesses a round; 0 for none.")
    seed: int | None = Field(
        None, ge=0, lt=1 << 63, description="The same seed gives the same answer."
    )
    stop: str | Strings | None = Field(
        None, description="The text ends before the first of these strings."
    )
    rule: Rule = Field(
        "exact",
        description="exact: the target's own distribution. threshold: a guess is kept "
        "where the target gives it more than tau, else the most probable token is "
        "taken; that is another distribution, and the answer says so.",
    )
    tau: float | None = Field(None, ge=0, le=1, description="For rule threshold.")
    stream: bool = Field(False, description="Server-sent events, piece by piece.")


class GenerateRequest(_Sampling):
    """A text to go on with."""

    prompt: str
    max_new_tokens: Count = NEW_TOKENS


class StreamOptions(_Body):
    include_usage: bool = False
    include_obfuscation: bool = False


class _OpenAI(_Sampling):
    """What OpenAI's clients may send beside; only values that change nothing."""

    model: str | None = None
    top_p: float | None = Field(1.0, gt=0, le=1)
    n: Annotated[int, Field(ge=1, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=0, le=0)] | None = None
    frequency_penalty: Annotated[float, Field(ge=0, le=0)] | None = None
    logit_bias: Annotated[dict[str, Any], Field(max_length=0)] | None = None
    user: str | None = None
    stream_options: StreamOptions | None = None


class CompletionRequest(_OpenAI):
    """A text to go on with, as OpenAI's clients send it."""

    prompt: str | Annotated[Strings, Field(min_length=1, max_length=1)]
    max_tokens: Count | None = OPENAI_NEW_TOKENS
    best_of: Annotated[int, Field(ge=1, le=1)] | None = None
    echo: Literal[False] | None = None
    logprobs: None = None
    suffix: None = None


class ChatMessage(_Body):
    role: Literal["system", "developer", "user", "assistant"]
    content: str
    name: str | None = None


class ChatRequest(_OpenAI):
    """Messages to answer, as OpenAI's clients send them."""

    messages: Annotated[
        list[ChatMessage], Field(min_length=1, max_length=1000, fail_fast=True)
    ]
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    logprobs: Literal[False] | None = None


def generate_task(body: GenerateRequest, settings: Settings) -> Task:
    return _task(
        body, body.prompt, "prompt", body.max_new_tokens, "max_new_tokens", settings
    )


def completion_task(body: CompletionRequest, settings: Settings) -> Task:
    prompt = body.prompt if isinstance(body.prompt, str) else body.prompt[0]
    most = OPENAI_NEW_TOKENS if body.max_tokens is None else body.max_tokens
    return _task(body, prompt, "prompt", most, "max_tokens", settings)


def chat_task(body: ChatRequest, settings: Settings) -> Task:
    name = "max_completion_tokens"
    most = body.max_completion_tokens
    if most is None:
        name, most = "max_tokens", body.max_tokens
    if most is None:
        most = min(NEW_TOKENS, settings.new_tokens)
    messages = [
        {"role": "system" if each.role == "developer" else each.role}
        | {"content": each.content}
        for each in body.messages
    ]
    return _task(body, messages, "messages", most, name, settings)


def _task(
    body: _Sampling,
    prompt: str | list[dict[str, str]],
    prompt_name: str,
    most: int,
    most_name: str,
    settings: Settings,
) -> Task:
    """The task, if it keeps to the operator's limits; :class:`Invalid` otherwise."""
    texts = [prompt] if isinstance(prompt, str) else [m["content"] for m in prompt]
    size = sum(map(len, texts))
    _at_most(prompt_name, size, settings.prompt_characters, "characters")
    _at_most(most_name, most, settings.new_tokens)
    if body.k is not None:
        _at_most("k", body.k, settings.k)
    stops = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    _at_most("stop", len(stops), settings.stops, "strings")
    for each in stops:
        _at_most("stop", len(each), settings.stop_characters, "characters each")
        if not each:
            raise Invalid("stop must not have an empty string", param="stop")
    if (body.tau is not None) != (body.rule == "threshold"):
        raise Invalid(
            "tau must be given with rule 'threshold', and only there", param="tau"
        )
    verify: Verify = verify_tokens
    if body.tau is not None:
        verify = probability_threshold(body.tau)
    return Task(
        prompt=prompt,
        max_new_tokens=most,
        k=body.k,
        sampler=Sampler(body.temperature, body.top_k, body.top_p),
        rule=body.rule,
        tau=body.tau,
        verify=verify,
        stop=stops,
        # Chosen here where it is not given, so that the answer can be had again.
        seed=secrets.randbits(53) if body.seed is None else body.seed,
        seconds=settings.deadline,
        stream=body.stream,
        fields={
            "prompt": prompt_name,
            "max_new_tokens": most_name,
            **{name: name for name in ("k", "stop", "seed", "temperature")},
        },
    )


def _at_most(name: str, value: int, limit: int, of: str = "") -> None:
    if value > limit:
        what = f"{limit} {of}" if of else f"{limit}"
        raise Invalid(f"{name} must be at most {what}, got {value}", param=name)


def problems(errors: list[Any]) -> list[tuple[str, str]]:
    """The first fields that are wrong and what is wrong with them, without their
    values."""
    found: dict[str, str] = {}
    for error in errors:
        kind = error["type"]
        path = [str(part) for part in error["loc"] if part != "body"]
        if kind == "json_invalid" or not path:
            name = "body"
        else:
            name = path[0]
        name = name if len(name) <= NAME else name[:NAME] + "…"
        found.setdefault(name, str(error["msg"]))
    return list(found.items())[:NAMED]
