"""Gets a metrics page of this host, and finds the ports on which a job listens."""

import http.client
import io
import ipaddress
import os
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from urllib.parse import urlsplit

from advisor.errors import InputError, JobError, SourceError

# From the connection to the last byte; a page is made in some milliseconds.
_PATIENCE_S = 0.5

LARGEST_BYTES = 4 * 2**20


def address_of(url: str) -> tuple[str, int, str]:
    """Host, port and path of a page of this host.

    Raises:
        InputError: the URL is not one over plain HTTP on loopback.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 80
    except ValueError as error:
        raise InputError(f"{url!r} is no URL: {error}") from error
    if parts.scheme != "http" or not is_loopback(host) or parts.username is not None:
        raise InputError(
            f"{url!r} is no http:// address of this host",
            why="a job is counted where it runs, and nothing else is spoken to",
            fix="write http://127.0.0.1:PORT/metrics",
        )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not path.isascii() or not path.isprintable() or " " in path:
        raise InputError(f"{url!r} has characters that no URL may have")
    return host, port, path


def answers(url: str) -> bool:
    """Whether a service listens there."""
    host, port, _ = address_of(url)
    try:
        socket.create_connection((host, port), timeout=_PATIENCE_S).close()
    except OSError:
        return False
    return True


def fetch(url: str) -> bytes:
    """The page; no proxy and no redirect is followed.

    Raises:
        SourceError: there is none now: no listener, no answer in time, or no page.
        JobError: it is too large.
    """
    received = io.BytesIO(_exchange(url))

    def makefile(_mode: str) -> io.BytesIO:
        return received

    # All that `HTTPResponse` asks of a socket.
    answer = http.client.HTTPResponse(cast("socket.socket", SimpleNamespace(makefile=makefile)))
    try:
        answer.begin()
        page = answer.read()
    except (http.client.HTTPException, ValueError, OverflowError) as error:
        raise SourceError(f"{url} gave no whole HTTP answer", why=repr(error)[:200]) from error
    if answer.status != 200:
        to = answer.getheader("Location")
        why = f"redirects, as to {to[:100]!r}, are not followed" if to else ""
        raise SourceError(f"{url} answered HTTP {answer.status}", why=why)
    return page


def _exchange(url: str) -> bytes:
    """All that comes, headers as well, within the time that one request has."""
    (host, port, path), ends_s = address_of(url), time.monotonic() + _PATIENCE_S
    name = f"[{host}]" if ":" in host else host
    request = (
        f"GET {path} HTTP/1.1\r\nHost: {name}:{port}\r\nAccept: text/plain\r\n"
        "Accept-Encoding: identity\r\nConnection: close\r\n\r\n"
    )
    received = bytearray()
    try:
        with socket.create_connection((host, port), timeout=_PATIENCE_S) as server:
            server.sendall(request.encode())
            while part := server.recv(65536):
                received += part
                if len(received) > LARGEST_BYTES:
                    raise JobError(f"{url} sent more than {LARGEST_BYTES} bytes")
                server.settimeout(max(ends_s - time.monotonic(), 0.001))
    except TimeoutError as error:
        raise SourceError(f"{url} took longer than {_PATIENCE_S} s") from error
    except OSError as error:
        raise SourceError(f"no service answers at {url}", why=error.strerror or "") from error
    return bytes(received)


def is_loopback(host: str) -> bool:
    """Whether a name or an address is of this host alone."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listening_urls(pids: Iterable[int]) -> list[str]:
    """`http://HOST:PORT` of each loopback address that these processes alone listen on, by port.

    Sockets of another network namespace are not among them: they are not reached from here.
    """
    inodes_of_job = {inode for pid in pids for inode in _sockets(pid)}
    listeners: dict[tuple[int, str], set[str]] = {}
    for host, port, inode in _listening():
        listeners.setdefault((port, host), set()).add(inode)
    return [
        f"http://{f'[{host}]' if ':' in host else host}:{port}"
        for (port, host), inodes in sorted(listeners.items())
        if inodes <= inodes_of_job
    ]


def _sockets(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):  # closed since
                kind, _, inode = os.readlink(descriptor).partition(":")  # noqa: PTH115 - no path
                if kind == "socket":
                    yield inode.strip("[]")


def _listening() -> Iterator[tuple[str, int, str]]:
    """Loopback host, port and inode of each listening socket; one that takes all hosts has each."""
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        with suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                columns = line.split()
                if columns[3] == "0A":  # TCP_LISTEN (Linux: include/net/tcp_states.h)
                    address, _, port = columns[1].partition(":")
                    yield from ((host, int(port, 16), columns[9]) for host in _loopbacks(address))


def _loopbacks(address: str) -> tuple[str, ...]:
    """By which addresses this host reaches a listening one, which is in hex words of the CPU."""
    words = (int(address[n : n + 8], 16) for n in range(0, len(address), 8))
    ip = ipaddress.ip_address(b"".join(struct.pack("=I", word) for word in words))
    if isinstance(ip, ipaddress.IPv6Address):
        ip = ip.ipv4_mapped or ip
    if ip.is_unspecified:
        return ("127.0.0.1",) if ip.version == 4 else ("127.0.0.1", "::1")
    return (str(ip),) if ip.is_loopback else ()
