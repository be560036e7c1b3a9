"""Finds the addresses of this host on which the processes of a job listen."""

import ipaddress
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

_LISTENING = "0A"
"""State of a socket in /proc/net/tcp (Linux: include/net/tcp_states.h)."""


def listening_urls(pids: Iterable[int]) -> list[str]:
    """`http://HOST:PORT` of each loopback address that these processes alone listen on, by port.

    Sockets of another network namespace are not among them: they are not reached from here.
    """
    own = {inode for pid in pids for inode in _sockets(pid)}
    listeners: dict[tuple[int, str], set[str]] = {}
    for host, port, inode in _listening():
        listeners.setdefault((port, host), set()).add(inode)
    return [
        f"http://{f'[{host}]' if ':' in host else host}:{port}"
        for (port, host), inodes in sorted(listeners.items())
        if inodes <= own
    ]


def _sockets(pid: int) -> Iterator[str]:
    """Inodes of the sockets that a process holds open."""
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
                if columns[3] == _LISTENING:
                    address, _, port = columns[1].partition(":")
                    for host in _loopbacks(address):
                        yield host, int(port, 16), columns[9]


def _loopbacks(address: str) -> tuple[str, ...]:
    """By which addresses this host reaches a listening one, which is in hex words of the CPU."""
    words = (int(address[n : n + 8], 16) for n in range(0, len(address), 8))
    found = ipaddress.ip_address(b"".join(struct.pack("=I", word) for word in words))
    if isinstance(found, ipaddress.IPv6Address):
        found = found.ipv4_mapped or found
    if found.is_unspecified:
        return ("127.0.0.1",) if found.version == 4 else ("127.0.0.1", "::1")
    return (str(found),) if found.is_loopback else ()
