"""Listens, answers, and ends in good order: one process of the service."""

import asyncio
import gc
import logging
import resource
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace

import uvicorn
from fastapi import FastAPI

from advisor.errors import InputError
from advisor.settings import Settings
from advisor_api.app import create_app
from advisor_api.engine.metrics import Metrics
from advisor_api.http.listening import BACKLOG, listening
from advisor_api.http.options import ServeOptions, check_options
from advisor_api.http.protocol import Connections, LimitedProtocol
from advisor_api.systemd import Systemd

_SPARE_FILES = 256
"""Files that are no connections: the database, logs, folders of launches."""

_HANDSHAKE_S = 10.0


def serve(
    settings: Settings, options: ServeOptions, started: Callable[[ServeOptions], None]
) -> None:
    """Answer until SIGTERM or SIGINT, then let requests end.

    Args:
        settings: What the environment says.
        options: What the command line says.
        started: Called when it listens, with the port that it has.

    Raises:
        InputError: the options do not fit, or the address cannot be listened on.
        StoreError: the database cannot be used.
    """
    check_options(options)
    options = replace(options, max_connections=min(options.max_connections, _room_for_files()))
    tls = _tls(options)
    _log_to_stderr(options.log_level)
    with listening(options) as listener:
        real = options
        if options.socket is None:
            real = replace(options, port=listener.getsockname()[1])
        app = create_app(settings, real)
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
            systemd = Systemd(settings.environment)
            server = _Server(config, real, app.state.metrics, tls, systemd, started)
            runner.run(_answer(server, app, listener))


class _Server(uvicorn.Server):
    """uvicorn's server with bounded connections; ends its process only by returning."""

    def __init__(
        self,
        config: uvicorn.Config,
        options: ServeOptions,
        metrics: Metrics,
        tls: ssl.SSLContext | None,
        systemd: Systemd,
        started: Callable[[ServeOptions], None],
    ) -> None:
        super().__init__(config)
        self._options, self._tls, self._started = options, tls, started
        self._systemd = systemd
        self._connections = Connections(options, metrics)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        [listener] = sockets or []
        loop = asyncio.get_running_loop()

        def protocol() -> LimitedProtocol:
            return LimitedProtocol(self.config, self.server_state, self._connections)

        if self._options.socket is not None:
            server = await loop.create_unix_server(protocol, sock=listener, backlog=BACKLOG)
        else:
            server = await loop.create_server(
                protocol,
                sock=listener,
                ssl=self._tls,
                backlog=BACKLOG,
                ssl_handshake_timeout=_HANDSHAKE_S if self._tls else None,
            )
        self.servers = [server]
        self.started = True
        _spare_garbage_collection()
        self._started(self._options)
        self._systemd.ready(f"listens on {self._options.url}")

    async def on_tick(self, counter: int) -> bool:
        self._connections.sweep()
        self._systemd.turn()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._systemd.stopping()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        # uvicorn would end the process by the signal, before the database is closed.
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)


def _spare_garbage_collection() -> None:
    """Never look again at what lives as long as the process: no request is answered meanwhile."""
    gc.collect()
    gc.freeze()


async def _answer(server: _Server, app: FastAPI, listener: socket.socket) -> None:
    # Not uvicorn's own way to open the application, which tells errors as a stack trace.
    async with app.router.lifespan_context(app):
        await server.serve([listener])


def _tls(options: ServeOptions) -> ssl.SSLContext | None:
    if options.tls_certificate is None or options.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # A password that is asked for would wait for ever where nobody sits.
        context.load_cert_chain(options.tls_certificate, options.tls_key, password=lambda: "")
    except (OSError, ValueError) as error:
        raise InputError(
            f"TLS cannot use {options.tls_certificate} with {options.tls_key}",
            why=str(error),
            fix="give a certificate and its key, without a password, as PEM files",
        ) from error
    return context


def _room_for_files() -> int:
    """How many connections fit, with as many open files as this process may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return max(1, hard - _SPARE_FILES) if hard != resource.RLIM_INFINITY else sys.maxsize


def _log_to_stderr(level: str) -> None:
    formatter = logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    formatter.default_msec_format = "%s.%03dZ"
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # uvicorn warns of each request that is none, which anyone could fill the log with.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    logging.getLogger("alembic").setLevel(logging.WARNING)
