"""The process around the application: signals, and what is done at the end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..engine import Engine
from .app import create_app
from .hooks import Hooks
from .settings import Settings

__all__ = ["PATIENCE", "listen", "run"]

BACKLOG = 2048  # connections that wait to be accepted
KEEP_ALIVE = 75  # seconds that a connection may be idle
LAST_WORDS = 5  # seconds that answers may take to be sent, after the grace
PATIENCE = 30.0  # seconds with a client that asks nothing, or reads nothing


class Server(uvicorn.Server):
    """uvicorn, which lets the workers know as soon as a signal asks it to stop."""

    def __init__(self, config: uvicorn.Config, drain: Callable[[], None]) -> None:
        super().__init__(config)
        self._drain = drain

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._drain()
        super().handle_exit(sig, frame)


class Connection(H11Protocol):
    """uvicorn's, which would wait for ever for a first request, and for a client that
    does not read its answer; this one is broken off after ``PATIENCE`` seconds."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # paused means: something is not read yet
        self._timer = self.loop.call_later(PATIENCE, self._if_nothing_was_asked)

    def _if_nothing_was_asked(self) -> None:
        if self.cycle is None:
            self.transport.abort()  # type: ignore[unreachable]

    def pause_writing(self) -> None:
        super().pause_writing()
        self._timer.cancel()
        self._timer = self.loop.call_later(PATIENCE, self.transport.abort)

    def resume_writing(self) -> None:
        self._timer.cancel()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)


def listen(host: str, port: int) -> socket.socket:
    """A socket at this ``host`` and ``port``, where requests queue until served.

    Port 0 is any that is free. OSError naming the address where that cannot be.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        made = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise OSError(f"cannot listen at {host}, port {port}: {error}") from error
    # Only where it says that it is TCP does asyncio send small packets at once; else
    # the body of a short answer may wait 40 ms for the client to acknowledge its head.
    return socket.socket(
        family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=made.detach()
    )


def run(
    engine: Engine,
    settings: Settings,
    listening: socket.socket,
    hooks: Sequence[Hooks] = (),
) -> None:
    """Serve ``engine`` at ``listening``, until the process is asked to stop."""
    app = create_app(engine, settings, hooks)
    server = Server(_config(app, settings), app.state.workers.drain)
    server.run(sockets=[listening])


def _config(app: Any, settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=Connection,
        access_log=False,  # logs.RequestLog writes more
        log_config=None,  # logs.configure has been called, or the caller's own
        server_header=False,
        # Longer than a busy client pauses: to close a connection on which a request is
        # on its way is to lose that one.
        timeout_keep_alive=KEEP_ALIVE,
        limit_concurrency=settings.connections,
        timeout_graceful_shutdown=int(settings.grace) + LAST_WORDS,
    )
