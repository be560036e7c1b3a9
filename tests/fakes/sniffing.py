"""Commands in a network of their own, in which everything that is sent to anybody is seen.

    unshare --net --mount python sniffing.py < work

Every address leads back to this host, so a connection to anywhere is a packet on its loopback, and
so is a question for a name. Reads JSON: `folder`, `environment`, `commands`, each a list of words.
Runs these, and asks a service once. Prints JSON: what each command ended with and said, the address
of the service, and where connections and datagrams went, before as a test of the watch, and then.
"""

import contextlib
import io
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

ALL_PROTOCOLS = 3
TCP, UDP, ICMP = 6, 17, 1
SYN, ACK, ECHO = 0x02, 0x10, 8

ASKED = json.dumps({"jobs": [{"job": "gemm"}, {"job": "triad"}]}).encode()


class Watch:
    """Addresses that somebody here sent something to.

    Attributes:
        seen: Protocol, address and port; of a question for a name the packet as well.
    """

    def __init__(self) -> None:
        self.seen: set[tuple[str, str, int, str]] = set()
        every = socket.htons(ALL_PROTOCOLS)
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, every)
        self._socket.bind(("lo", 0))
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            packet, (_, kind, *_) = self._socket.recvfrom(65536)
            if kind == 0x0800:
                self._note(packet, (packet[0] & 15) * 4, packet[9], socket.inet_ntoa(packet[16:20]))
            elif kind == 0x86DD:
                self._note(packet, 40, packet[6], socket.inet_ntop(socket.AF_INET6, packet[24:40]))

    def _note(self, packet: bytes, begin: int, protocol: int, to: str) -> None:
        body = packet[begin:]
        port = struct.unpack(">H", body[2:4])[0]
        if protocol == TCP and body[13] & (SYN | ACK) == SYN:
            self.seen.add(("tcp", to, port, ""))
        elif protocol == UDP:
            self.seen.add(("udp", to, port, body[8:].decode("latin-1")))
        elif protocol == ICMP and body[0] == ECHO:
            self.seen.add(("icmp", to, 0, ""))


def lead_everywhere_back(folder: Path) -> None:
    """Every address is this host, and so is the server of names."""
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "route", "add", "local", "default", "dev", "lo"], check=True)
    (folder / "resolv.conf").write_text("nameserver 192.0.2.53\noptions timeout:1 attempts:1\n")
    subprocess.run(["mount", "--bind", str(folder / "resolv.conf"), "/etc/resolv.conf"], check=True)


def run(words: list[str]) -> tuple[int, str]:
    """A command to its end, in this process: its libraries are loaded once for all commands."""
    from advisor_cli.app import main

    sys.argv = ["advisor", *words]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as stopped:
            return int(stopped.code or 0), said.getvalue()
    return 0, said.getvalue()


def serve(folder: Path) -> str:
    """Ask a service once; its address."""
    from serving import serving

    with serving(folder) as served:
        request = urllib.request.Request(
            f"{served.url}/v1/recommendations", ASKED, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()
        return served.url


def main() -> None:
    work: dict[str, Any] = json.load(sys.stdin)
    folder = Path(work["folder"])
    lead_everywhere_back(folder)
    os.environ.update(work["environment"])
    os.chdir(folder / "work")
    watch = Watch()
    with contextlib.suppress(OSError):  # the watch is to see what is sent
        socket.create_connection(("203.0.113.7", 443), timeout=5)
    with contextlib.suppress(OSError):
        socket.getaddrinfo("telemetry.example.com", 443)
    ends = time.monotonic() + 10
    while len({one[0] for one in watch.seen}) < 2 and time.monotonic() < ends:
        time.sleep(0.01)
    known = 0
    while known != len(watch.seen):  # a name is asked for once for each kind of address
        known = len(watch.seen)
        time.sleep(1)
    checked, watch.seen = watch.seen, set()
    ended = {" ".join(words): run(words) for words in work["commands"]}
    url = serve(folder)
    print(json.dumps({"checked": [*checked], "ended": ended, "url": url, "seen": [*watch.seen]}))


if __name__ == "__main__":
    main()
