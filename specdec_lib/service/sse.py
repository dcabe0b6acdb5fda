"""Server-sent events, as in the HTML standard, section 9.2."""

from __future__ import annotations

import json
from typing import Any

MEDIA_TYPE = "text/event-stream"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
DONE = "data: [DONE]\n\n"  # how OpenAI's streams end


def event(data: dict[str, Any], name: str | None = None) -> str:
    r"""One event. Its data are JSON on one line, whatever is in the text.

    >>> event({"text": "a\nb"})
    'data: {"text":"a\\nb"}\n\n'
    """
    line = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Some readers end a line at these too.
    line = line.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    line = line.replace("\x85", "\\u0085")
    return (f"event: {name}\n" if name else "") + f"data: {line}\n\n"
