"""Records of sensors and measured kernels over HTTP: of this host, and those that are bundled."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from in_process import Api, error_of, running
from made_up_bundle import FOLDER_OF_BUNDLED, kernel_report
from made_up_kernel import record
from scripted_http import Reply, scripted_http

from advisor.client import Client
from advisor.errors import StoreError
from advisor.formats.wire import to_plain
from advisor.validity.sensor_record import SENSOR_RECORDS, keep_record

SENSORS, KERNELS = "/v1/power/sensors", "/v1/power/kernels"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home in which one sensor and one kernel were measured."""
    keep_record(record(), tmp_path / "home")
    kernel_report(tmp_path / "home")
    return tmp_path / "home"


@pytest.fixture
def api(home: Path, bundled_power: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    monkeypatch.setattr(FOLDER_OF_BUNDLED, lambda: bundled_power)
    with running(home) as api:
        yield api


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "name", "count"),
    [(SENSORS, "sensors", 2), (KERNELS, "kernels", 3)],
)
def test_pages_have_each_one_once(api: Api, path: str, name: str, count: int) -> None:
    """The newest first, whatever is measured at the same moment."""
    page: dict[str, Any] = api.get(path, limit=1)
    found: list[Any] = page[name]
    while page["next"]:
        page = api.get(path, limit=1, cursor=page["next"])
        found += page[name]
    assert (len(found), found) == (count, api.get(path)[name])
    moments = [one["measured_at"] for one in found]
    assert moments == sorted(moments, reverse=True)


def test_by_gpu_model_and_moment(api: Api) -> None:
    assert api.get(SENSORS, gpu_model="Fake H200")["sensors"] == [to_plain(record())]
    assert api.get(KERNELS, gpu_model="NVIDIA H200") == {"kernels": [], "next": None}
    assert api.get(KERNELS, before="2020-01-01")["kernels"] == []
    assert error_of(api.ask("GET", KERNELS, params={"job": "gemm"}))[0] == 422
    assert error_of(api.ask("GET", SENSORS, params={"cursor": "x"}))[0] == 422


def test_damaged_files_are_named(api: Api, home: Path) -> None:
    (file,) = (home / SENSOR_RECORDS.name).glob("*.json")
    file.write_text("{}")
    assert error_of(api.ask("GET", SENSORS))[1] == StoreError.code
    file.unlink()
    keep_record(replace(record(), measured_at="yesterday"), home)
    assert error_of(api.ask("GET", SENSORS))[1] == StoreError.code


def test_client_goes_through_all_pages() -> None:
    first, second = record(), replace(record(), gpu_uuid="GPU-2")
    pages: list[dict[str, Any]] = [
        {"sensors": [to_plain(first) | {"newer": 1}], "next": "5.0"},
        {"sensors": [to_plain(second)], "next": None},
        {"kernels": [], "next": None},
    ]
    with scripted_http() as scripted, Client(scripted.url) as client:
        scripted.will(*(Reply(body=page) for page in pages))
        assert client.sensors(gpu_model="Fake H200") == (first, second)
        assert client.kernels(gpu_model="Fake H200") == ()
    asked = [seen.path for seen in scripted.seen]
    assert asked[0] == "/v1/power/sensors?gpu_model=Fake+H200"
    assert asked[1].endswith("&cursor=5.0")
    assert asked[2] == "/v1/power/kernels?gpu_model=Fake+H200"
