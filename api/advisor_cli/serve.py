"""`advisor serve`: recommendations, launches and profiles over HTTP."""

import grp
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from advisor.errors import InputError
from advisor.settings import read_settings
from advisor_api.http.access import ServeOptions
from advisor_api.server import serve as serve_http
from advisor_cli.console import LogFormat, LogLevel, say


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="TCP port; 0: any", min=0, max=65535)] = 8765,
    socket: Annotated[
        Path | None,
        typer.Option(
            help="Unix socket to listen on instead of a port; callers are known by their user ID"
        ),
    ] = None,
    socket_group: Annotated[
        str | None,
        typer.Option(help="Group whose members may read, write and launch over the socket"),
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="PEM file with the certificate and its signers")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file with its key")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Let other hosts connect without TLS")
    ] = False,
    launching: Annotated[
        bool, typer.Option("--launching", help="Let tokens with the scope launch start jobs")
    ] = False,
    demo: Annotated[
        bool,
        typer.Option("--demo", help="Play recorded launches, a day in ten minutes; needs no GPU"),
    ] = False,
    anonymous_read: Annotated[
        bool | None,
        typer.Option(
            help="Allow reading without a token (default: only on loopback)",
            show_default=False,
        ),
    ] = None,
    allowed_host: Annotated[
        list[str] | None, typer.Option(help="Another host name of this server; repeatable")
    ] = None,
    ms_per_s: Annotated[
        float, typer.Option(help="Limit of work for each caller, ms per second", min=0.1)
    ] = 500.0,
    max_connections: Annotated[
        int,
        typer.Option(
            help="Maximum number of open connections; above it the idlest is closed", min=1
        ),
    ] = 4096,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
    otel: Annotated[
        bool,
        typer.Option("--otel", help="Send traces and metrics to OTEL_EXPORTER_OTLP_ENDPOINT"),
    ] = False,
) -> None:
    """Serve HTTP; by default only this host can connect, and nothing is launched.

    Example: advisor serve --port 8765
    """
    options = ServeOptions(
        host=host,
        port=port,
        socket=socket and socket.absolute(),
        socket_group=None if socket_group is None else _group(socket_group),
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        insecure=insecure,
        launching=launching,
        anonymous_read=anonymous_read,
        allowed_hosts=tuple(allowed_host or ()),
        ms_per_s=ms_per_s,
        burst_ms=20 * ms_per_s,
        max_connections=max_connections,
        replayed=demo,
        log_level=log_level,
        log_format=log_format,
        otel=otel,
    )
    if demo and launching:
        raise InputError("a demonstration launches nothing", fix="leave out --launching or --demo")
    with ExitStack() as stack:
        settings = read_settings()
        if demo:
            from advisor_api.demo import demo_settings

            # Before the server listens, and where the terminal is lost, nothing is left behind
            # either. The server takes SIGTERM by itself, and lets requests end.
            signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
            signal.signal(
                signal.SIGHUP, lambda _number, _frame: signal.raise_signal(signal.SIGTERM)
            )
            settings = stack.enter_context(demo_settings(settings))
        serve_http(settings, options, _say_started)


def _group(name: str) -> int:
    """The number of a group of this host.

    Raises:
        InputError: there is none of that name.
    """
    with InputError.instead_of(
        KeyError,
        f"this host has no group {name}",
        why="",
        fix="make it: groupadd NAME; or give another one",
    ):
        return grp.getgrnam(name).gr_gid


def _say_started(options: ServeOptions) -> None:
    lines = (
        f"API: {options.url}/docs, {options.url}/v1/openapi.json"
        if options.socket is None
        else f"API: curl --unix-socket {options.socket} http://localhost/v1/openapi.json\n"
        "  this user and root may do everything",
        f"launching: {'on' if options.launching else 'off; turn it on with --launching'}",
        f"reading: {'needs no token' if options.anonymous else 'needs a token'}",
        "make a token: advisor tokens create NAME --scope read --scope write",
    )
    if options.replayed:
        lines = (
            "a demonstration: all that it shows was recorded earlier, and is gone when it ends",
        )
    say("\n  ".join((f"advisor listens on {options.url}", *lines)))
