"""Listens, answers, and ends in good order: one process of a server."""

import asyncio
import gc
import logging
import os
import re
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from advisor.core.wording import JsonFormatter, PrintableFormatter
from advisor.settings import Settings
from advisor_api.http.access import ServeOptions, check_options
from advisor_api.http.connections import (
    BACKLOG,
    Certificate,
    Connections,
    LimitedProtocol,
    listening,
)
from advisor_api.http.routing import HttpMetrics


def serve(
    settings: Settings, options: ServeOptions, started: Callable[[ServeOptions], None]
) -> None:
    """Answer until SIGTERM or SIGINT, then let requests end.

    `started` is called when it listens, with the port that it has.

    Raises:
        InputError: the options do not fit, or the address cannot be listened on.
        ModuleNotFoundError: traces and metrics are to be sent, and what sends is not installed.
        StoreError: the database cannot be used.
    """
    # Here: a server of another application need not load all of the service.
    from advisor_api.app import create_app
    from advisor_api.otlp import send_all

    if options.otel:
        send_all(os.environ)
    serve_app(lambda real: create_app(settings, real), options, started, settings.environment)


def serve_app(
    make_app: Callable[[ServeOptions], Starlette],
    options: ServeOptions,
    started: Callable[[ServeOptions], None],
    environment: Mapping[str, str],
) -> None:
    """As `serve`, for any application.

    It is made with the options as they came to be; its `state.metrics` are `HttpMetrics`, and its
    lifespan is opened and closed. The environment says whether systemd wants to know.

    Raises:
        InputError: the options do not fit, or the address cannot be listened on.
    """
    check_options(options)
    # Beside threads that work, the event loop waits for its turn ten times for one answer.
    sys.setswitchinterval(0.0005)
    # How many connections fit, with as many open files as this process may have.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # Some files are no connections: the database, logs, folders of launches.
    room = max(1, hard - 256) if hard != resource.RLIM_INFINITY else sys.maxsize
    options = replace(options, max_connections=min(options.max_connections, room))
    certificate = (
        Certificate(options.tls_certificate, options.tls_key, options.client_ca)
        if options.tls_certificate is not None and options.tls_key is not None
        else None
    )
    formatter = PrintableFormatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    formatter.default_msec_format = "%s.%03dZ"
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if options.log_format == "json" else formatter)
    logging.basicConfig(level=options.log_level.upper(), handlers=[handler], force=True)
    # uvicorn warns of each request that is none, which anyone could fill the log with.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    for name in ("alembic", "httpx"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with listening(options) as listener:
        real = replace(options, port=options.port if options.socket else listener.getsockname()[1])
        app = make_app(real)
        config = uvicorn.Config(
            app,
            lifespan="off",
            ws="none",
            loop="uvloop",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=round(real.idle_s),
            timeout_graceful_shutdown=round(real.drain_s),
        )
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            server = _Server(
                config, real, app.state.metrics, certificate, Systemd(environment), started
            )
            runner.run(_answer(server, app, listener))


class _Server(uvicorn.Server):
    """uvicorn's server with bounded connections; ends its process only by returning."""

    def __init__(
        self,
        config: uvicorn.Config,
        options: ServeOptions,
        metrics: HttpMetrics,
        certificate: Certificate | None,
        systemd: "Systemd",
        started: Callable[[ServeOptions], None],
    ) -> None:
        super().__init__(config)
        self._options, self._certificate, self._started = options, certificate, started
        self._systemd, self._connections = systemd, Connections(options, metrics)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen at the socket that is open already, with bounded connections, and tell systemd."""
        [listener] = sockets or []
        loop = asyncio.get_running_loop()

        protocol = partial(LimitedProtocol, self.config, self.server_state, self._connections)
        self.servers = [
            await loop.create_unix_server(protocol, sock=listener, backlog=BACKLOG)
            if self._options.socket is not None
            else await loop.create_server(
                protocol,
                sock=listener,
                ssl=self._certificate and self._certificate.context,
                backlog=BACKLOG,
                ssl_handshake_timeout=10.0 if self._certificate else None,
            )
        ]
        self.started = True
        # No request is answered while the collector looks: never again at what lives as long as
        # the process; often at what is new; at all that is kept (0.2 s) only after 2 million.
        gc.collect()
        gc.freeze()
        gc.set_threshold(2_000, 10, 100)
        self._started(self._options)
        self._systemd.ready(f"listens on {self._options.url}")

    async def on_tick(self, counter: int) -> bool:
        """End connections that wait too long; once in a while renew the certificate."""
        self._connections.sweep()
        self._systemd.turn()
        # A tick is a tenth of a second.
        if self._certificate is not None and counter % 10 == 0:
            self._certificate.renew()
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end, and see to it that no thread which waits for a disk holds that up."""
        super().handle_exit(sig, frame)
        threading.Thread(
            target=_leave, args=[self._options.drain_s + _CLOSE_S], daemon=True
        ).start()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Tell systemd, then answer waiting requests."""
        self._systemd.stopping()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Signals ask for the end while the block runs; it is the process that ends itself."""
        # uvicorn would end the process by the signal, before the database is closed.
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)


# What is open is closed in so long after the last request, s.
_CLOSE_S = 10.0


def _leave(within_s: float) -> None:
    time.sleep(within_s)
    names = ", ".join(thread.name for thread in threading.enumerate())
    logging.getLogger(__name__).error("left with threads that do not end: %s", names)
    os._exit(0)


async def _answer(server: _Server, app: Starlette, listener: socket.socket) -> None:
    # Not uvicorn's own way to open the application, which tells errors as a stack trace.
    async with app.router.lifespan_context(app):
        await server.serve([listener])


class Systemd:
    """The socket of `Type=notify` and the watchdog of `WatchdogSec=`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        # A name that begins with @ is no file (unix(7)).
        self._address = re.sub("^@", "\0", environment.get("NOTIFY_SOCKET", ""))
        is_for_us = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        watchdog_us = environment.get("WATCHDOG_USEC", "0") if is_for_us else "0"
        # Four pings in the time after which systemd gives a service up: one or two may be late.
        self._every_s, self._pinged_s = int(watchdog_us) / 1e6 / 4, 0.0

    def ready(self, status: str) -> None:
        """Requests are answered from now on."""
        self._say(f"READY=1\nSTATUS={status}")

    def turn(self) -> None:
        """The event loop has turned; called by nothing else, and much more often than needed."""
        now_s = time.monotonic()
        if self._every_s and now_s - self._pinged_s >= self._every_s:
            self._pinged_s = now_s
            self._say("WATCHDOG=1")

    def stopping(self) -> None:
        """Requests under way are let to end."""
        self._say("STOPPING=1\nSTATUS=requests under way end")

    def _say(self, text: str) -> None:
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
                door.setblocking(False)
                door.sendto(text.encode(), self._address)
