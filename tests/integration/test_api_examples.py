"""The examples of OpenAPI: asked of a real service, which must still answer them so.

With `RECORD=1` in the environment it writes down what is answered now, for api/openapi.json, too.
"""

import importlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from host import FakeHost
from launch_server import LaunchServer, launch_server, make_tokens
from launched import no_leftovers
from small_model import free_names, save_model
from waiting import eventually

from advisor_api.openapi import EXAMPLES, operations
from advisor_models.registry import Registry
from advisor_power.data.predictor import model_folder

# Its types are known in part only.
jsonschema_rs: Any = importlib.import_module("jsonschema_rs")

RENEW = "RECORD=1 .venv/bin/python -m pytest tests/integration/test_api_examples.py, then openapi"

WITHOUT = {"show_metrics", "show_evaluation"}
"""One is no JSON; the other is a file of a model, which the bundled one does not have."""

OF_HERE = {"host": "gpu7", "CUDA_MPS_PIPE_DIRECTORY": "/run/advisor/mps"}
"""What an example has in the place of names and folders of this host."""

MOST_OBJECTS, MOST_ITEMS = 2, 8
"""Of a list in an example, by what is in it."""


@pytest.fixture(scope="module")
def server(fake_libraries: Path, input_model: Path) -> Iterator[LaunchServer]:
    """One that launches on a GPU that bundled profiles are of, with a model of power by data."""
    with tempfile.TemporaryDirectory(prefix="adv") as folder:
        (Path(folder) / "nvml" / "gpu0").mkdir(parents=True)
        host = FakeHost(Path(folder), fake_libraries)
        (host.folder / "nvml/gpu0/name").write_text("NVIDIA H200")
        for job in ("triad", "gemm", "fft"):
            host.write_job(job)
        shutil.copytree(input_model, model_folder(host.folder / "home"), dirs_exist_ok=True)
        model = save_model(host.folder / "made", version="20260201-first")
        with free_names():
            Registry(host.folder / "home/models").add(model)
        tokens = make_tokens(host, "examples")
        with no_leftovers(host), launch_server(host, tokens, "--launching") as server:
            yield server


@pytest.mark.slow
def test_examples_are_what_is_answered(server: LaunchServer) -> None:
    """Each has the keys that its example shows, and both fit what OpenAPI says of them."""
    contract = server.ask("GET", "/v1/openapi.json").plain
    known = {o["operationId"]: (path, method, o) for path, method, o in operations(contract)}
    examples, seen = json.loads(EXAMPLES.read_bytes()), dict[str, str]()
    for example in examples:
        path, method, operation = known[example["operation"]]
        given = {**example.get("parameters", {})}
        for name in given.keys() & seen.keys():
            given[name] = seen[name]
        answer = answered(server, method, path, given, example)
        made = ("launch_id", "join_id") if example["status"] == 202 else ()
        seen |= {name: answer[name] for name in made if name in answer}
        found = cut(answer)
        if "RECORD" in os.environ:
            example |= {"parameters": given} if given else {}
            example["answer"] = found
        place = f"{example['operation']} {example['status']}"
        was = example["answer"]
        assert shape(was, found) == shape(found, was), f"{place}: {RENEW}"
        assert_fits(contract, answer_schema(contract, operation, example["status"]), found, place)
        if "body" in example and example["status"] < 300:
            sent = operation["requestBody"]["content"]["application/json"]["schema"]
            assert_fits(contract, sent, example["body"], place)
    assert known.keys() - {example["operation"] for example in examples} == WITHOUT
    if "RECORD" in os.environ:
        EXAMPLES.write_text(json.dumps(examples, indent=1, ensure_ascii=False) + "\n")


def answered(
    server: LaunchServer, method: str, path: str, given: dict[str, Any], example: dict[str, Any]
) -> dict[str, Any]:
    """What the service says; of a launch and a join, once they run."""
    address = path.format_map(given)
    query = "&".join(f"{k}={v}" for k, v in given.items() if f"{{{k}}}" not in path)
    words = f"{address}?{query}".rstrip("?").replace(" ", "%20")

    def ask() -> dict[str, Any] | None:
        answer = server.ask(method.upper(), words, example.get("body"), example.get("scope"))
        assert answer.status == example["status"], answer.text
        found = answer.plain
        where = {"show_launch": "state", "show_join": "outcome"}.get(example["operation"])
        return None if where and found[where] in ("accepted", "starting", "waiting") else found

    return eventually(ask, lambda: words)


def cut(value: Any) -> Any:
    """The same with short lists, and no name of this host."""
    if isinstance(value, dict):
        return {k: OF_HERE.get(k) or cut(v) for k, v in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        items = cast("list[Any]", value)
        most = MOST_OBJECTS if any(isinstance(item, dict) for item in items) else MOST_ITEMS
        return [cut(item) for item in items[:most]]
    return value


def shape(value: Any, other: Any) -> Any:
    """Keys, by those of the first item of a list; what may be null says nothing of either."""
    if value is None or other is None:
        return None
    if isinstance(value, dict):
        fields, others = cast("dict[str, Any]", value), cast("dict[str, Any]", other)
        return {key: shape(inner, others.get(key)) for key, inner in fields.items()}
    if isinstance(value, list):
        return shape(value[0], other[0]) if value and other else None
    return None


def answer_schema(contract: dict[str, Any], operation: dict[str, Any], status: int) -> Any:
    response = operation["responses"][str(status)]
    if "$ref" in response:
        response = contract["components"]["responses"][response["$ref"].rpartition("/")[2]]
    return response["content"]["application/json"]["schema"]


def assert_fits(contract: dict[str, Any], schema: Any, value: Any, place: str) -> None:
    whole = {**schema, "components": contract["components"]}
    faults = [fault.message for fault in jsonschema_rs.validator_for(whole).iter_errors(value)]
    assert not faults, f"{place}: {faults}"
