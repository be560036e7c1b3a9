"""The pages for people, and the contract for programs: the same for everyone, so without a token.

What pages show they ask of /v1, with whatever token their reader has.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from string import Template

from fastapi import APIRouter, HTTPException, Request, Response

from advisor_api.http.routing import ready_answer

router = APIRouter(include_in_schema=False)

FOLDER = Path(__file__).parents[1] / "pages"

PAGES: Mapping[str, tuple[str, str]] = {
    "/": ("Overview", "overview.js"),
    "/jobs": ("Jobs", "jobs.js"),
    "/matrix": ("Matrix", "matrix.js"),
    "/job": ("Job", "job.js"),
    "/set": ("Set", "set.js"),
    "/queue": ("Queue", "queue.js"),
    "/models": ("Models", "models.js"),
    "/model": ("Model", "model.js"),
    "/launches": ("Launches", "launches.js"),
    "/launch": ("Launch", "launch.js"),
    "/docs": ("HTTP API", "api.js"),
}
"""Title and script of each page by its path."""

CONTRACT = ("/v1/openapi.json", "/openapi.json")
"""Where the service describes itself: beside what it describes, and where programs look first."""

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}


def _file(content: bytes, suffix: str) -> Callable[[Request], Response]:
    # Asked for again each time, so an upgrade shows at once; unchanged it costs no body. A
    # browser wants the icon with every change of an address, and that can be an old one.
    keep = "max-age=86400" if suffix == ".svg" else "no-cache"
    return ready_answer(content, content, _TYPES[suffix], keep)


_REPLAYED = (
    '<p class="replayed" role="note"><strong>Replayed.</strong> Launches of windows that were '
    "recorded on an H100 and an H200, much faster than they were; no GPU is in use.</p>"
)


def _read_files(note: str) -> dict[str, Callable[[Request], Response]]:
    """All files by path. They are few and small: read once, and no request names one of a disk."""
    shell = Template((FOLDER / "shell.html").read_text(encoding="utf-8"))
    pages = {
        path: _file(shell.substitute(title=title, script=script, note=note).encode(), ".html")
        for path, (title, script) in PAGES.items()
    }
    others = {
        f"/pages/{path.name}": _file(path.read_bytes(), path.suffix)
        for path in FOLDER.iterdir()
        if path.suffix in _TYPES and path.suffix != ".html"
    }
    return {**pages, **others}


# By whether the service plays records.
_FILES = {False: _read_files(""), True: _read_files(_REPLAYED)}


def _answer(request: Request) -> Response:
    if (file := _FILES[request.app.state.replayed].get(request.url.path)) is None:
        raise HTTPException(404)
    return file(request)


def _contract(request: Request) -> Response:
    state = request.app.state
    if state.contract is None:
        text = json.dumps(request.app.openapi(), ensure_ascii=False, separators=(",", ":"))
        state.contract = _file(text.encode(), ".json")
    return state.contract(request)


for _path in CONTRACT:
    router.add_api_route(_path, _contract, methods=["GET"])
for _path in (*PAGES, "/pages/{name}"):
    router.add_api_route(_path, _answer, methods=["GET"])
