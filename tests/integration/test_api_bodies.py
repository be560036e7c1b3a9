"""Bodies that hold nothing, at every route that takes one."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from in_process import Api, error_of, running

from advisor_api.launches import launching
from advisor_api.service import Service

PATHS = json.loads((Path(__file__).parents[2] / "api/openapi.json").read_text())["paths"]
TAKE_A_BODY = [
    (method.upper(), path)
    for path, operations in PATHS.items()
    for method, operation in operations.items()
    if "requestBody" in operation
]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A service whose launch routes look at their bodies; they start nothing without one."""

    def launch_routes_are_on(_service: Service) -> None:
        """Pass what `advisor serve --launching` lets pass."""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launching, "check_on", launch_routes_are_on)
        with running(tmp_path_factory.mktemp("home")) as api:
            yield api


@pytest.fixture(scope="module")
def token(api: Api) -> str:
    return api.token("read", "write", "launch", "admin")


@pytest.mark.slow
@pytest.mark.parametrize("body", ["", "null", " \n"], ids=["none", "null", "blank"])
@pytest.mark.parametrize(("method", "path"), TAKE_A_BODY)
def test_an_empty_body_is_a_fault_of_the_request(
    api: Api, token: str, method: str, path: str, body: str
) -> None:
    answer = api.ask(method, path.replace("{", "").replace("}", ""), token, content=body)
    status, code, message = error_of(answer)
    assert (status, code) == (422, "bad-input")
    assert "body" in message
