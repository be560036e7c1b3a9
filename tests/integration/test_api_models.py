"""Models over HTTP: listing, promoting and rolling back, with copies of the bundled model.

That a process killed in the midst of a promotion leaves the old or the new champion is proven of
the registry itself, in tests/unit/test_registry.py; the service adds nothing to it.
"""

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from in_process import Api, error_of, running

from advisor.formats.wire import read
from advisor.wire.lists import ModelList
from advisor_models.registry import (
    BUNDLED,
    Artefact,
    Registry,
    read_manifest,
    sha256,
    write_artefact,
)

ASKED = {"jobs": [{"job": "fft"}, {"job": "gemm"}]}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    """A service on a new home with two models next to the bundled one."""
    home = tmp_path / "home"
    add_model(home, "v1", evaluation={"jobs": [{"job": "fft"}]})
    add_model(home, "v2")
    with running(home) as api:
        yield api


@pytest.fixture
def admin(api: Api) -> str:
    return api.token("admin")


def add_model(home: Path, version: str, evaluation: Any = None) -> None:
    folder = home.parent / f"trained-{version}"
    shutil.copytree(BUNDLED, folder)
    manifest = read_manifest(folder)
    files = {name: hash_ for name, hash_ in manifest.files.items() if name != "evaluation.json"}
    if evaluation:
        text = json.dumps(evaluation).encode()
        (folder / "evaluation.json").write_bytes(text)
        files["evaluation.json"] = sha256(text)
    write_artefact(
        folder, Artefact(dataclasses.replace(manifest, version=version, files=files), {})
    )
    Registry(home / "models").add(folder)


def version_of_answer(api: Api) -> str:
    return api.post("/v1/recommendations", ASKED)["model"]["version"]


def test_promotion_and_rollback_count_at_once(api: Api, admin: str) -> None:
    bundled = version_of_answer(api)
    done = api.post("/v1/models/v1/promote", None, admin)
    assert done == {"champion": "v1", "replaced": "bundled"}
    assert version_of_answer(api) == "v1"
    done = api.post("/v1/models/rollback", None, admin)
    assert done == {"champion": "bundled", "replaced": "v1"}
    assert version_of_answer(api) == bundled
    assert error_of(api.ask("POST", "/v1/models/rollback", admin))[:2] == (409, "conflict")


def test_models_are_listed_with_their_history(api: Api, admin: str) -> None:
    """The champion first; every change is there with what it replaced, the newest first."""
    api.post("/v1/models/v2/promote", None, admin)
    api.post("/v1/models/bundled/promote", None, admin)
    listed = api.get("/v1/models")
    read(ModelList, json.dumps(listed))
    first = listed["models"][0]
    assert (first["model"], first["champion"]) == ("bundled", True)
    assert {row["model"] for row in listed["models"]} == {"bundled", "v1", "v2"}
    changes = [(c["action"], c["version"], c["replaced"]) for c in listed["history"]]
    assert changes == [("promote", "bundled", "v2"), ("promote", "v2", "bundled")]
    assert len(api.get("/v1/models", limit=1)["history"]) == 1


def test_damaged_model_spoils_neither_the_list_nor_the_service(
    api: Api, admin: str, tmp_path: Path
) -> None:
    """It is listed with its fault, cannot be promoted, and answers go on by the champion."""
    (tmp_path / "home/models/versions/v1/power.trees").write_bytes(b"damaged")
    rows = {row["model"]: row for row in api.get("/v1/models")["models"]}
    assert "SHA-256" in rows["v1"]["error"]
    for method, path in (("POST", "/v1/models/v1/promote"), ("GET", "/v1/models/v1")):
        assert error_of(api.ask(method, path, admin))[:2] == (503, "model")
    assert version_of_answer(api) == read_manifest(BUNDLED).version
    outcomes = [entry["outcome"] for entry in api.get("/v1/audit", admin)["entries"]]
    assert outcomes == ["model", "begun"]


def test_evaluation_is_served_where_the_model_carries_it(api: Api) -> None:
    assert api.ask("GET", "/v1/models/v1/evaluation").json() == {"jobs": [{"job": "fft"}]}
    assert error_of(api.ask("GET", "/v1/models/v2/evaluation"))[:2] == (404, "not-found")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v3", "..", ".adding-v1", "v1%2F..%2Fv2"])
def test_names_that_are_no_models(api: Api, admin: str, name: str) -> None:
    status, code, _ = error_of(api.ask("POST", f"/v1/models/{name}/promote", admin))
    assert (status, code) in {(404, "not-found"), (422, "bad-input"), (405, "method-not-allowed")}
    assert api.get("/v1/models")["history"] == []


# promotions under load, by the script whose figures docs/models.md has


SCRIPT = Path(__file__).parents[2] / "docs/measurements/reload_under_load.py"


@pytest.mark.slow
def test_no_request_fails_and_no_answer_has_fields_of_two_models() -> None:
    """Each answer is byte for byte that of one model, and each promotion is taken up."""
    done = subprocess.run(
        [sys.executable, SCRIPT, "--promotions", "2"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["promotions"] == 2
    assert found["requests"] > 50
    assert (found["failed"], found["mixed"], found["not_taken_up"]) == (0, 0, 0)
