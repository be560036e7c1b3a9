"""How the service is to run: what the command line says, checked once."""

from dataclasses import dataclass
from pathlib import Path

from advisor.errors import InputError
from advisor.scrape.fetch import is_loopback


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """Options of `advisor serve`.

    Attributes:
        host: Address or name to listen on.
        port: TCP port; 0 lets the system choose one.
        socket: Path of a Unix socket to listen on instead; the kernel tells the user there.
        socket_group: Number of a group whose members may read, write and launch there.
        tls_certificate: PEM file with the certificate and those that signed it.
        tls_key: PEM file with its private key, without a password.
        client_ca: PEM file with the CAs of client certificates; None: clients need none.
        insecure: Listen on other addresses than loopback without TLS.
        launching: Requests may launch registered jobs.
        anonymous_read: Whether reading needs no token; None: on a port that only this host
            can reach.
        allowed_hosts: Names that a Host header may have, next to loopback and the address itself.
        ms_per_s: Work that each caller (a token, or an address without one) may ask for, ms.
        burst_ms: What a caller may ask for at once before the rate holds.
        max_in_flight: Requests being answered at the same time; more get 503, and half of it are
            those of one caller, who gets 429 for more.
        max_connections: Open connections; the one that has waited longest makes room for a new one.
        max_bodies_bytes: All bodies that are being received or answered, together.
        max_head_bytes: Longest request line and headers of a request.
        header_s: Time for a new connection to send the head of its first request, s.
        idle_s: The same for each further request, from the answer before, s.
        body_s: Time for a body, from its head, s.
        write_s: Time that an answer may wait for a client that does not read, s.
        drain_s: Time for requests to end when the service is stopped, s.
        replayed: All figures were recorded earlier; every answer is marked.
        log_level: `debug`, `info`, `warning` or `error`; requests are logged at `info`.
        log_format: `text`, or `json` for an object a line.
        otel: Send traces and metrics to where the `OTEL_` variables say.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    socket: Path | None = None
    socket_group: int | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    insecure: bool = False
    launching: bool = False
    anonymous_read: bool | None = None
    allowed_hosts: tuple[str, ...] = ()
    ms_per_s: float = 500.0
    burst_ms: float = 10_000.0
    max_in_flight: int = 256
    max_connections: int = 4096
    max_bodies_bytes: int = 64 * 1024 * 1024
    max_head_bytes: int = 32 * 1024
    header_s: float = 10.0
    idle_s: float = 30.0
    body_s: float = 10.0
    write_s: float = 30.0
    drain_s: float = 10.0
    replayed: bool = False
    log_level: str = "info"
    log_format: str = "text"
    otel: bool = False

    @property
    def anonymous(self) -> bool:
        """Whether reading needs no token."""
        if self.anonymous_read is None:
            return is_loopback(self.host) and self.socket is None
        return self.anonymous_read

    @property
    def url(self) -> str:
        """The address that clients on this host use."""
        if self.socket is not None:
            return f"unix:{self.socket}"
        scheme = "https" if self.tls_certificate else "http"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}"


def check_options(options: ServeOptions) -> None:
    """Refuse what would be unsafe or could not work.

    Raises:
        InputError: half of TLS is given, or neither TLS nor `insecure` on an open address.
    """
    if (options.tls_certificate is None) != (options.tls_key is None):
        raise InputError(
            "TLS needs both a certificate and its key",
            fix="give --tls-certificate FILE and --tls-key FILE",
        )
    if options.socket is not None and options.tls_certificate is not None:
        raise InputError(
            "a Unix socket has no TLS",
            why="its traffic does not leave the host",
            fix="give --socket or --tls-certificate",
        )
    if options.socket_group is not None and options.socket is None:
        raise InputError("a group is let in on a Unix socket only", fix="give --socket PATH")
    closed = options.socket or is_loopback(options.host) or options.tls_certificate
    if not (closed or options.insecure):
        raise InputError(
            f"{options.host} can be reached from other hosts, and there is no TLS",
            why="tokens would cross the network in plain text",
            fix="give --tls-certificate and --tls-key; or --insecure where something in front of "
            "it does TLS",
        )
