"""Limits, and how much is done at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Settings:
    """Every number that an operator may set. ValueError unless all are positive.

    name
        what the service calls its model.
    workers
        requests that are decoded at the same time.
    queue
        requests that may wait beside these; any more are refused with 429. May be 0.
    deadline
        seconds from a request to the end of its answer.
    grace
        seconds that running requests are given at shutdown. May be 0.
    body_bytes, body_seconds
        how large a request may be, and how long it may take to arrive.
    prompt_characters, prompt_tokens
        how long a prompt may be; the model's context window bounds it too.
    new_tokens
        most tokens that a request may ask for.
    k
        most guesses a round.
    stops, stop_characters
        how many stop strings, and how long each.
    connections
        open connections; uvicorn answers any more with 503.
    """

    name: str = "book"
    workers: int = 2
    queue: int = 64
    deadline: float = 60.0
    grace: float = 10.0
    body_bytes: int = 1 << 20
    body_seconds: float = 10.0
    prompt_characters: int = 100_000
    prompt_tokens: int = 8192
    new_tokens: int = 1024
    k: int = 16
    stops: int = 8
    stop_characters: int = 128
    connections: int = 1000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "name":
                continue
            least_is_0 = field.name in ("queue", "grace")
            if not (math.isfinite(value) and (value > 0 or (least_is_0 and not value))):
                raise ValueError(
                    f"{field.name} must be finite and "
                    f"{'0 or more' if least_is_0 else 'more than 0'}, got {value!r}"
                )
