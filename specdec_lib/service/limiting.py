"""Around every request: an id, limits on its body, and no stack trace in its answer."""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import Callable
from typing import Any

from .errors import Internal, Refusal, TooLarge, TooSlow
from .settings import Settings

log = logging.getLogger("specdec.service")
ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


class Limiting:
    """ASGI middleware.

    The request's id is its header X-Request-ID, where that is 1 to 64 letters, digits,
    dots and dashes, or made here; every answer carries it. ``refused`` is told of what
    is turned away here.
    """

    def __init__(
        self, app: Any, settings: Settings, refused: Callable[[Refusal, str], None]
    ) -> None:
        self._app = app
        self._settings = settings
        self._refused = refused

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"")
        request_id = given.decode() if ID.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        begun = False

        async def send_with_id(message: Any) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                extra = [(b"x-request-id", request_id.encode())]
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        try:
            length = headers.get(b"content-length", b"0")
            if length.isdigit() and int(length[:20]) > self._settings.body_bytes:
                raise self._too_large()
            await self._app(scope, self._limited(receive), send_with_id)
        except Refusal as refusal:
            await self._answer(refusal, scope, receive, send_with_id)
        except Exception:
            log.exception("request %s failed", request_id)
            if begun:
                raise  # too late for a status: the connection breaks off
            await self._answer(Internal(request_id), scope, receive, send_with_id)

    async def _answer(
        self, refusal: Refusal, scope: Any, receive: Any, send: Any
    ) -> None:
        self._refused(refusal, scope["path"])
        response = refusal.response(scope["state"]["request_id"])
        await response(scope, receive, send)

    def _limited(self, receive: Any) -> Any:
        """``receive`` of a body that is not too large, and not too long in coming."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._settings.body_seconds
        read, done = 0, False

        async def limited() -> Any:
            nonlocal read, done
            if done:
                return await receive()
            try:
                async with asyncio.timeout_at(end):
                    message = await receive()
            except TimeoutError:
                raise TooSlow("the body did not arrive in time") from None
            read += len(message.get("body", b""))
            if read > self._settings.body_bytes:
                raise self._too_large()
            done = not message.get("more_body", False)
            return message

        return limited

    def _too_large(self) -> TooLarge:
        return TooLarge(
            f"body must have at most {self._settings.body_bytes} bytes", param="body"
        )
