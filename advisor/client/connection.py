"""How to reach the service: address, token, patience and trust, checked before anything is sent."""

import re
import ssl
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

import httpx

import advisor
from advisor.errors import InputError

Verify: TypeAlias = bool | str | Path | ssl.SSLContext
"""True: a certificate that the system trusts; a file: one that is signed by those in it; False:
any, so that anybody on the way can read the token."""

UNIX = "unix:"
"""How the address of a Unix socket begins."""

TIMEOUT_S = 30.0
"""For a connection and for an answer, unless set otherwise."""


def connection(url: str, token: str | None, timeout_s: float, verify: Verify) -> httpx.Client:
    """A client of HTTP that reaches the service.

    Raises:
        InputError: the address, token, time or certificate cannot be used.
    """
    if not timeout_s > 0:
        raise InputError(f"timeout_s is {timeout_s:g}", fix="give seconds above 0")
    path = url.removeprefix(UNIX) if url.startswith(UNIX) else None
    return httpx.Client(
        base_url="http://localhost" if path else _checked_url(url),
        headers={"User-Agent": f"advisor/{advisor.__version__}", **_authorization(token)},
        timeout=timeout_s,
        verify=_trust(verify),
        transport=httpx.HTTPTransport(uds=path) if path else None,
        # A proxy of the environment would read the token on its way to a service inside.
        trust_env=False,
    )


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        plain = not (parts.username or parts.password or parts.query or parts.fragment)
    except ValueError:
        good = plain = False
    if not (good and plain):
        # Not repeated: people write passwords into addresses.
        raise InputError(
            "the address of the service is not valid",
            fix="give one like http://127.0.0.1:8765; a token goes into `token`",
        )
    return url.rstrip("/")


def _authorization(token: str | None) -> dict[str, str]:
    if token is None:
        return {}
    # Checked here, since an error of the library below would show what it cannot send.
    if not re.fullmatch(r"[A-Za-z0-9._~+/=-]+", token):
        raise InputError(
            "the token is empty or has characters that no token has",
            why="a line end or a space at its end, often",
            fix="give it as `advisor tokens create` printed it",
        )
    return {"Authorization": f"Bearer {token}"}


def _trust(verify: Verify) -> bool | ssl.SSLContext:
    if isinstance(verify, ssl.SSLContext) or verify is False:
        return verify
    with InputError.instead_of(
        OSError,
        f"{verify} cannot be read as certificates",
        fix="give a PEM file with the certificate that signed the service's",
    ):
        return ssl.create_default_context(cafile=None if verify is True else str(verify))
