"""The examples of docs/client.md and docs/api.md, run as they stand against a real service."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from host import FakeHost
from page_blocks import Block, blocks
from serving import Served, serving

from advisor.client import Client, LaunchRequest, PlacementRequest, RecommendationRequest

DOCS = Path(__file__).parents[2] / "docs"
ADDRESS = "http://127.0.0.1:8765"
"""As the documents write it."""


@pytest.fixture(scope="module")
def service(fake_libraries: Path) -> Iterator[Served]:
    """One that may launch, on a host with a fake GPU and the two jobs of the examples."""
    # Short, since socket paths are.
    with tempfile.TemporaryDirectory(prefix="adv") as folder:
        (Path(folder) / "nvml" / "gpu0").mkdir(parents=True)
        host = FakeHost(Path(folder), fake_libraries)
        for job in ("bert-train", "vit-infer"):
            host.write_job(job)
        with serving(Path(folder), ["--launching"], **host.environment()) as served:
            yield served


@pytest.fixture(scope="module")
def client(service: Served) -> Iterator[Client]:
    with Client(service.url, service.token("end", "read", "launch")) as client:
        yield client


@pytest.fixture(autouse=True)
def nothing_goes_on(client: Client) -> Iterator[None]:
    """What a test launched would hold the GPU of the next one, and outlive the service."""
    yield
    for launch in client.launches(active=True):
        client.stop_launch(launch)
        client.wait(launch, timeout_s=60)


@pytest.fixture(scope="module")
def environment(service: Served) -> dict[str, str]:
    """Variables of the examples: a token that may do everything that they do."""
    token = service.token("examples", "admin")
    return {
        "ADVISOR_TOKEN": token,
        "TOKEN": token,
        "URL": service.url,
        "PATH": os.environ["PATH"],
    }


@pytest.mark.slow
def test_python_examples_run(service: Served, environment: dict[str, str], tmp_path: Path) -> None:
    """The Python of the page, read from top to bottom, runs without an error or a warning."""
    found = [block.text for block in blocks(DOCS / "client.md") if block.language == "python"]
    assert found
    script = tmp_path / "examples.py"
    script.write_text("\n".join(found).replace(ADDRESS, service.url))
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.parametrize("document", ["client.md", "api.md"])
def test_shell_examples_run(
    service: Served, environment: dict[str, str], document: str, tmp_path: Path
) -> None:
    """Each command, in order, gets what is written behind it, or an error that is announced."""
    shown = blocks(DOCS / document)
    found = [
        (block, behind.text if behind.language == "json" and behind.before.endswith("```") else "")
        for block, behind in pairwise([*shown, shown[0]])
        if block.language == "bash" or block.text.startswith("curl")
    ]
    assert len(found) >= 3
    for block, answer in found:
        command = f"curl() {{ command curl --noproxy '*' \"$@\"; echo; }}\n{block.text}"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command.replace(ADDRESS, service.url)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{block.page}:{block.line}: {done.stderr}"
        assert_announced(block, answer, _json_texts(done.stdout), done.stdout)


def assert_announced(block: Block, shown: str, answers: list[Any], output: str) -> None:
    """There is an answer; it has the keys that are shown, and is no error that nobody speaks of."""
    place = f"{block.page}:{block.line}"
    assert answers or "# HELP" in output, f"{place}: {output}"
    expected: dict[str, Any] = json.loads(shown) if shown else {}
    for answer in answers:
        if "error" in answer and "error" not in expected:
            assert f"`{answer['error']['code']}`" in block.before, f"{place}: {answer}"
    if expected:
        assert_has(answers[-1], expected, place)


def test_every_route_is_written_down() -> None:
    """What OpenAPI lists stands in docs/api.md; launches have a page of their own."""
    text = (DOCS / "api.md").read_text()
    paths: list[str] = list(json.loads((DOCS.parent / "api/openapi.json").read_text())["paths"])
    rest = [path for path in paths if path.startswith("/v1/") and "/launches" not in path]
    assert len(rest) >= 12
    assert not [path for path in rest if path not in text]


@pytest.mark.parametrize(
    ("page", "heading", "body"),
    [
        ("api.md", "## Recommendations", RecommendationRequest),
        ("api.md", "## Placements", PlacementRequest),
        ("launch-api.md", "# Launching over HTTP", LaunchRequest),
    ],
)
def test_every_field_of_a_request_is_written_down(page: str, heading: str, body: Any) -> None:
    """Under its heading; what a launch has in common with advice stands there alone."""
    section = (DOCS / page).read_text().partition(f"{heading}\n")[2].partition("\n## ")[0]
    lacking = {field.name for field in fields(body) if f"`{field.name}`" not in section}
    assert lacking <= {of.name for of in fields(RecommendationRequest) if body is LaunchRequest}


def assert_has(answer: Any, documented: Any, place: str = "") -> None:
    """Every key that is documented is there, at any depth; codes are the same."""
    if isinstance(documented, dict):
        for name, value in cast("dict[str, Any]", documented).items():
            assert name in answer, f"{place}.{name}"
            assert_has(answer[name], value, f"{place}.{name}")
    elif isinstance(documented, list):
        for item, value in zip(answer, cast("list[Any]", documented)):  # noqa: B905
            assert_has(item, value, f"{place}[]")
    elif place.endswith(".error.code"):
        assert answer == documented


def _json_texts(output: str) -> list[Any]:
    """All JSON that a block wrote, in order; other lines between are left out."""
    decoder, found, at = json.JSONDecoder(), list[Any](), 0
    while (begin := re.compile(r"[\[{]").search(output, at)) is not None:
        try:
            value, at = decoder.raw_decode(output, begin.start())
            found.append(value)
        except ValueError:
            at = begin.end()
    return found
