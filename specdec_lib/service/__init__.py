"""The engine behind HTTP: ``specdec serve``.

    settings      limits, and how much is done at once
    errors        what is refused, and with which status
    schemas       what a request may say, and the task that it becomes
    calls         the seam around every call of draft, target and rule
    hooks         the seam around a request: accepted, started, a round, finished
    jobs          the queue, the workers, deadlines
    sse           server-sent events
    shapes        answers in the service's own shape, and in that of OpenAI
    limiting      request ids, limits on bodies, no stack trace leaves
    watching      every request from its arrival to the end of its answer
    breakers      what is done where draft or target fails, as hooks
    metrics       figures for Prometheus, as hooks
    tracing       OpenTelemetry spans, as hooks
    logs          JSON lines, as hooks
    app           the endpoints
    models        from ``--model`` to an engine
    process       the process around it: signals, shutdown
    command       the flags of ``specdec serve``
    load          many clients, and whether each answer is the right one

Needs more than the core: ``pip install specdec_lib[serve]``.

A request goes this way. ``app`` reads it into a :class:`~.schemas.Task` and hands that
to :class:`~.jobs.Workers`, which refuse it (429) or give back a :class:`~.jobs.Job`. A
worker, one thread of ``settings.workers``, takes the job when its turn comes, and runs
``engine.stream`` round by round. Each piece of text goes to the event loop; ``shapes``
makes an answer of them. Requests share the weights of the models and nothing else:
each has its own states, random source and draft session.

Whoever wants to watch or to guard hands ``create_app`` some :class:`~.hooks.Hooks`:
they are told of each event, may stand around each call of draft, target and rule
(:class:`~.calls.Guard`), and may say that the service is not ready.

Ends of a request, beside those of the engine ("stop", "length", "context"):

deadline
    ``settings.deadline`` seconds after it was accepted. What there is by then is the
    answer, status 200, finish reason "deadline"; if there is nothing, since it was
    still waiting for its turn, 504.
shutdown
    The process was asked to stop (SIGTERM, SIGINT). It takes no more requests (503),
    goes on with those it has for ``settings.grace`` seconds, then ends them: finish
    reason "shutdown" with what there is, 503 for those still waiting.
client gone
    The place is free within a round. A client that asks nothing, or does not read its
    answer, is let go after ``process.PATIENCE`` seconds.

There is no TLS, no key and no share of the places for each client: where strangers can
reach the service, a proxy that knows of these stands before it.
"""
