"""Heads of requests that say more than they need: offers of another protocol, whole addresses.

RFC 9110, section 7.8: a server may ignore an offer (`Upgrade`). The parser below does not: it takes
what follows the head for the other protocol, so the body would be read as the next request.
"""

from collections.abc import Iterable

import httptools

_OFFERS = (b"upgrade", b"http2-settings")
"""Header fields of an offer, and what `Connection` says of them."""


def without_offer(
    method: bytes, url: bytes, version: str, headers: Iterable[tuple[bytes, bytes]]
) -> bytes:
    """The head of a request as it would be without the offer of another protocol.

    Args:
        method: Of the request line.
        url: Its target as it came.
        version: Such as `1.1`.
        headers: Names in lower case, and values.

    Raises:
        ValueError: a value with a line end, which could begin another header.
    """
    lines = [b"%s %s HTTP/%s" % (method, url, version.encode())]
    for name, value in headers:
        if b"\r" in value or b"\n" in value:
            raise ValueError(name)
        if name == b"connection":
            value = b",".join(t for t in value.split(b",") if t.strip().lower() not in _OFFERS)
        if name not in _OFFERS:
            lines.append(b"%s: %s" % (name, value))
    return b"\r\n".join(lines) + b"\r\n\r\n"


def of_whole_address(url: bytes) -> tuple[bytes, bytes]:
    """Target and host of a request that names the whole address (RFC 9112, section 3.2.2).

    Args:
        url: As `http://host:port/path?query`.

    Returns:
        The target from its path on, and the host that stands for the header `Host`.

    Raises:
        ValueError: another scheme, a user, or no host.
        HttpParserError: no address at all.
    """
    parts = httptools.parse_url(url)
    if parts.schema.lower() not in (b"http", b"https") or not parts.host or parts.userinfo:
        raise ValueError(url)
    bare = b"[%s]" % parts.host if b":" in parts.host else parts.host
    host = b"%s:%d" % (bare, parts.port) if parts.port else bare
    query = b"?" + parts.query if parts.query else b""
    return (parts.path or b"/") + query, host
