"""How a Prometheus lets us in: a token of the environment, or the file that promtool takes, too."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import requests
import yaml
from requests.auth import AuthBase

from advisor.errors import InputError

TOKEN = "ADVISOR_PROMETHEUS_TOKEN"

_KNOWN = {
    "basic_auth": {"username", "password", "password_file"},
    "authorization": {"type", "credentials", "credentials_file"},
    "tls_config": {"ca_file", "cert_file", "key_file", "insecure_skip_verify"},
}


def session_for(secrets: Mapping[str, str], file: Path | None = None) -> requests.Session:
    """A session with what lets us in.

    The file is that of `promtool --http.config.file`
    (https://prometheus.io/docs/prometheus/latest/command-line/promtool/): `basic_auth`,
    `authorization` and `tls_config` of it are known.

    Raises:
        InputError: the file cannot be read, or wants what is not done here.
    """
    session = requests.Session()
    config: Mapping[str, Any] = _read(file) if file else {}
    if unknown := sorted(_unknown(config)):
        known = "; ".join(f"{part}: {', '.join(sorted(of))}" for part, of in _KNOWN.items())
        raise InputError(f"{file} has {', '.join(unknown)}", fix=f"leave only these: {known}")
    base = file.parent if file else Path()
    if given := config.get("authorization"):
        kind, value = given.get("type", "Bearer"), _secret(given, "credentials", base)
        session.auth = _Header(f"{kind} {value}")
    elif given := config.get("basic_auth"):
        session.auth = (str(given.get("username", "")), _secret(given, "password", base))
    elif token := secrets.get(TOKEN):
        session.auth = _Header(f"Bearer {token}")
    _tls(session, config.get("tls_config") or {}, base)
    return session


def _unknown(config: Mapping[str, Any]) -> Iterator[str]:
    """What would be passed over without a word, such as a rule for certificates."""
    for part, given in config.items():
        if part not in _KNOWN or not isinstance(given, dict):
            yield str(part)
        else:
            names = map(str, cast("dict[object, object]", given))
            yield from (f"{part}.{name}" for name in names if name not in _KNOWN[part])


class _Header(AuthBase):
    """As `auth` it goes before what a .netrc says, and to no other host."""

    def __init__(self, value: str) -> None:
        self._value = value

    def __call__(self, r: requests.PreparedRequest) -> requests.PreparedRequest:
        r.headers["Authorization"] = self._value
        return r


def _tls(session: requests.Session, given: Mapping[str, Any], base: Path) -> None:
    if given.get("insecure_skip_verify"):
        raise InputError(
            "insecure_skip_verify is not done here",
            why="whoever answers would get the token",
            fix="name who signed the server's certificate: ca_file",
        )
    if ca := given.get("ca_file"):
        session.verify = str(base / ca)
    if cert := given.get("cert_file"):
        session.cert = (str(base / cert), str(base / given.get("key_file", cert)))


def _secret(given: Mapping[str, Any], name: str, base: Path) -> str:
    if named := given.get(f"{name}_file"):
        path = base / named
        with InputError.instead_of((OSError, ValueError), f"{path} cannot be read"):
            return path.read_text().strip()
    return str(given.get(name, ""))


def _read(file: Path) -> Mapping[str, Any]:
    with InputError.instead_of((OSError, ValueError, yaml.YAMLError), f"{file} cannot be read"):
        found: object = yaml.safe_load(file.read_text())
    if not isinstance(found, dict):
        raise InputError(f"{file} is no configuration of HTTP", fix="write basic_auth: in it")
    return cast("Mapping[str, Any]", found)
