"""What is refused, and with which status. Every refusal has the same body:

    {"error": {"message": …, "type": …, "param": …, "code": …, "request_id": …}}

which is the shape that OpenAI's clients read. ``param`` names the field at fault.
"""

from __future__ import annotations

import math
from typing import Any

from fastapi import HTTPException
from fastapi.responses import JSONResponse


class Refusal(HTTPException):
    """Ends a request with a status and a message for the client; ``retry_after`` are
    the seconds after which another try makes sense."""

    status = 500
    type = "server_error"
    code = "internal"

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        headers = None
        if retry_after is not None:
            headers = {"Retry-After": str(max(1, math.ceil(retry_after)))}
        super().__init__(self.status, message, headers)
        self.message = message
        self.param = param
        self.retry_after = retry_after

    def body(self, request_id: str) -> dict[str, Any]:
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
                "request_id": request_id,
            }
        }

    def response(self, request_id: str) -> JSONResponse:
        return JSONResponse(self.body(request_id), self.status, self.headers)

    def __str__(self) -> str:
        return self.message


class Internal(Refusal):
    """Our fault. The message tells nothing but the request id."""

    def __init__(self, request_id: str) -> None:
        super().__init__(f"the service failed; tell its operator: {request_id}")


class Invalid(Refusal):
    """The request's fault; ``param`` names the field."""

    status, type, code = 422, "invalid_request_error", "invalid"


class TooLarge(Invalid):
    status, code = 413, "too_large"


class TooSlow(Invalid):
    """The rest of the body may still come: the connection is of no more use."""

    status, code = 408, "too_slow"

    def __init__(self, message: str) -> None:
        super().__init__(message, param="body")
        self.headers = {"Connection": "close"}


class NotFound(Invalid):
    status, code = 404, "not_found"


class NotAllowed(Invalid):
    status, code = 405, "not_allowed"


class Busy(Refusal):
    """All places are taken."""

    status, type, code = 429, "rate_limit_error", "busy"


class Unavailable(Refusal):
    """The service is stopping, or its target does not work."""

    status, code = 503, "unavailable"


class Overdue(Refusal):
    """The deadline passed before any text."""

    status, code = 504, "deadline"


BY_STATUS: dict[int, type[Refusal]] = {
    each.status: each for each in (NotFound, NotAllowed, TooLarge, TooSlow, Invalid)
}
