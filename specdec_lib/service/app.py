"""The endpoints.

    POST /generate               a text goes on: JSON, or events where "stream" is true
    POST /v1/completions         the same as OpenAI's clients ask for it
    POST /v1/chat/completions    messages are answered, where the model has a template
    GET  /v1/models              the one model there is
    GET  /health                 200 while the process is alive
    GET  /ready                  200 where requests are welcome, 503 where they are not
    GET  /metrics                figures for Prometheus
    GET  /openapi.json           all of this for machines
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from .. import __version__
from ..engine import Engine
from .errors import BY_STATUS, Internal, Invalid, NotFound, Refusal, Unavailable
from .hooks import AllHooks, Hooks
from .jobs import Job, Workers
from .limiting import Limiting
from .schemas import (
    ChatRequest,
    CompletionRequest,
    GenerateRequest,
    Task,
    chat_task,
    completion_task,
    generate_task,
    problems,
)
from .settings import Settings
from .shapes import ChatShape, GenerateShape, OpenAIShape, Shape
from .sse import HEADERS, MEDIA_TYPE

log = logging.getLogger("specdec.service")

GONE = 499  # nobody is there to read it


def create_app(
    engine: Engine, settings: Settings | None = None, hooks: Sequence[Hooks] = ()
) -> FastAPI:
    """The service over ``engine``, an ASGI application.

    ``app.state.workers`` are its :class:`Workers`; ``drain()`` of these begins a
    shutdown. ``hooks`` watch and guard it.
    """
    settings = Settings() if settings is None else settings
    every = AllHooks(hooks)
    workers = Workers(engine, settings, every)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        workers.start()
        yield
        await workers.stop()
        every.shutdown()

    app = FastAPI(
        title="Speculative decoding",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,  # those pages load from other servers
        redoc_url=None,
        # Where a slash too many would lead is for the request's own Host to say.
        redirect_slashes=False,
    )
    app.state.workers = workers
    app.state.settings = settings
    _handle_errors(app, every)

    def submit(request: Request, task: Task) -> Job:
        every.check()
        job = Job(_id(request), task, request.headers, request.url.path)
        workers.submit(job)
        return job

    @app.post("/generate", summary="Continue a text")
    async def generate(request: Request, body: GenerateRequest) -> Response:
        job = submit(request, generate_task(body, settings))
        shape = GenerateShape(settings.name)
        return await _respond(request, workers, job, shape, every)

    @app.post("/v1/completions", summary="Continue a text, for OpenAI's clients")
    async def completions(request: Request, body: CompletionRequest) -> Response:
        _check_model(body.model, settings)
        job = submit(request, completion_task(body, settings))
        shape = OpenAIShape(settings.name, body)
        return await _respond(request, workers, job, shape, every)

    @app.post("/v1/chat/completions", summary="Answer messages, for OpenAI's clients")
    async def chat(request: Request, body: ChatRequest) -> Response:
        _check_model(body.model, settings)
        if not engine.has_chat:
            raise NotFound(
                "this model has no chat template; use /v1/completions", param="model"
            )
        job = submit(request, chat_task(body, settings))
        shape = ChatShape(settings.name, body)
        return await _respond(request, workers, job, shape, every)

    @app.get("/v1/models", summary="The model there is, for OpenAI's clients")
    async def models() -> dict[str, Any]:
        model = {
            "id": settings.name,
            "object": "model",
            "created": 0,
            "owned_by": "specdec",
        }
        return {"object": "list", "data": [model]}

    @app.get("/health", summary="Whether the process is alive")
    async def health() -> dict[str, str]:
        return {"status": "ok", "version": __version__}

    @app.get("/ready", summary="Whether requests are welcome")
    async def ready() -> dict[str, Any]:
        reason = "the service is stopping" if workers.draining else every.not_ready()
        if reason is not None:
            raise Unavailable(reason)
        return {
            "status": "ready",
            "model": settings.name,
            "running": workers.running,
            "waiting": workers.waiting,
        }

    app.add_middleware(Limiting, settings=settings, refused=every.refused)
    every.startup(app)  # what a hook adds stands around all this
    return app


def _id(request: Request) -> str:
    return str(request.state.request_id)


def _check_model(name: str | None, settings: Settings) -> None:
    if name is not None and name != settings.name:
        raise NotFound(
            f"model must be {settings.name!r}, the only one here", param="model"
        )


async def _respond(
    request: Request,
    workers: Workers,
    job: Job,
    shape: Shape,
    hooks: Hooks,
) -> Response:
    """The answer: at once when the job is done, or piece by piece."""
    watcher = asyncio.create_task(_leave_when_gone(request, workers, job))
    streaming = False
    try:
        pieces = job.pieces()
        # A status can be told only before the first text, so that one is waited for.
        first = await anext(pieces, None)
        if job.task.stream:
            streaming = True
            events = _events(workers, job, shape, hooks, watcher, first, pieces)
            marked = HEADERS | _marks(job)
            return StreamingResponse(events, media_type=MEDIA_TYPE, headers=marked)
        async for _ in pieces:
            pass
        if job.outcome is None:
            return Response(status_code=GONE)
        return JSONResponse(shape.whole(job, job.outcome), headers=_marks(job))
    except Refusal as refusal:
        hooks.refused(refusal, job.path)
        return refusal.response(job.request_id)
    finally:
        if not streaming:
            watcher.cancel()
            workers.leave(job)


async def _events(
    workers: Workers,
    job: Job,
    shape: Shape,
    hooks: Hooks,
    watcher: asyncio.Task[None],
    first: str | None,
    pieces: AsyncIterator[str],
) -> AsyncIterator[str]:
    try:
        for each in shape.begin(job):
            yield each
        if first is not None:
            yield shape.piece(job, first)
        async for text in pieces:
            yield shape.piece(job, text)
        if job.outcome is not None:
            for each in shape.end(job, job.outcome):
                yield each
    except Refusal as refusal:
        hooks.refused(refusal, job.path)
        for each in shape.error(job, refusal):
            yield each
    finally:
        watcher.cancel()
        workers.leave(job)


async def _leave_when_gone(request: Request, workers: Workers, job: Job) -> None:
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            workers.leave(job)
            return


def _marks(job: Job) -> dict[str, str]:
    """What is missing, as far as it is known before the text."""
    return {"X-Specdec-Degraded": ", ".join(job.degraded)} if job.degraded else {}


def _handle_errors(app: FastAPI, hooks: Hooks) -> None:
    """Every error gets the same body; none tells what is inside."""

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        found = problems(list(error.errors()))
        message = "; ".join(f"{name}: {what}" for name, what in found)
        refusal = Invalid(message, param=found[0][0] if found else None)
        hooks.refused(refusal, request.url.path)
        return refusal.response(_id(request))

    @app.exception_handler(StarletteHTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        if isinstance(error, Refusal):
            refusal = error
        elif error.status_code == 400:  # what FastAPI makes of an unreadable body
            refusal = Invalid("body: it cannot be read as JSON", param="body")
        elif error.status_code in BY_STATUS:
            refusal = BY_STATUS[error.status_code](str(error.detail))
            refusal.headers = error.headers  # Allow, with 405
        else:
            refusal = Internal(_id(request))
        hooks.refused(refusal, request.url.path)
        return refusal.response(_id(request))
