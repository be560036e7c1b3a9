"""Jobs, profiles, points, observations and the audit log over HTTP, on a real SQLite file."""

import dataclasses
import itertools
import json
import math
import shutil
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flat_records import changed
from in_process import Api, error_of, running
from made_up_bundle import FOLDER_OF_BUNDLED, kernel_report
from made_up_kernel import record
from reading import answer_of
from scripted_http import Reply, scripted_http
from small_model import free_names
from store_points import observation
from waiting import PATIENCE_S

from advisor.client import Client
from advisor.core.records import PairPoint, SoloPoint
from advisor.errors import StoreError
from advisor.formats.rows import P, from_row, to_row
from advisor.formats.wire import read, to_plain
from advisor.runtime.processes import wait_until
from advisor.validity.sensor_record import SENSOR_RECORDS, keep_record
from advisor.wire.answers import (
    AuditLog,
    JobList,
    JobRow,
    ModelList,
    Observations,
    PairPoints,
    ProfilePoints,
)
from advisor_data import open_store
from advisor_data.bundled import bundled_pair_points, bundled_solo_points
from advisor_models.model_predictor import LEAF, NODE
from advisor_models.registry import (
    BUNDLED,
    Artefact,
    Registry,
    read_artefact,
    sha256,
    write_artefact,
)

ASKED = {"jobs": [{"job": "mine"}, {"job": "gemm"}]}
OF_FFT = {"jobs": [{"job": "fft"}, {"job": "gemm"}]}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    """A service on a new database, with two job files, one of them faulty."""
    (tmp_path / "mine.yaml").write_text("command: sleep 1\n")
    (tmp_path / "faulty.yaml").write_text("comand: sleep 1\n")
    with running(tmp_path / "home", tmp_path) as api:
        yield api


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with running(tmp_path_factory.mktemp("home")) as api:
        yield api


@pytest.fixture(scope="module")
def tokens(empty: Api) -> dict[str, str]:
    return {scope: empty.token(scope) for scope in ("read", "write", "launch", "admin")}


@pytest.fixture
def writer(api: Api) -> str:
    return api.token("write")


def signed(points: Sequence[P]) -> list[P]:
    """As the service keeps what the token of that name has sent."""
    return [dataclasses.replace(point, written_by="write") for point in points]


def sweep(job: str = "mine", like: str = "bert-train", **changes: Any) -> list[SoloPoint]:
    """A whole profile of a job that is like a bundled one."""
    found = (p for p in bundled_solo_points({like}) if p.gpu_model == "NVIDIA H200")
    return [dataclasses.replace(point, job=job, **changes) for point in found]


def pair_point(job_a: str, job_b: str) -> PairPoint:
    return changed(bundled_pair_points()[0], job_1=job_a, job_2=job_b)


def rows(points: list[Any]) -> dict[str, Any]:
    return {"points": [to_row(point) for point in points]}


def put(api: Api, token: str, points: list[SoloPoint], job: str = "mine") -> Any:
    return api.ask("PUT", f"/v1/profiles/{job}", token, json=rows(points))


def test_new_profile_counts_at_once(api: Api, writer: str) -> None:
    """After PUT the next answer is made from it, after DELETE from the bundled one again."""
    for points, source, unit in (
        (None, "bundled", "transforms"),
        (sweep("fft", "triad"), "stored", "passes"),
    ):
        if points:
            assert answer_of(put(api, writer, points, "fft").content) == {"stored": 20}
        assert api.get("/v1/profiles/fft")["source"] == source
        assert api.post("/v1/recommendations", OF_FFT)["jobs"][0]["rate_unit"] == unit
    assert answer_of(api.ask("DELETE", "/v1/profiles/fft", writer).content) == {"deleted": 20}
    assert api.get("/v1/profiles/fft")["source"] == "bundled"
    assert api.post("/v1/recommendations", OF_FFT)["jobs"][0]["rate_unit"] == "transforms"


def test_profile_comes_back_as_it_was_sent(api: Api, writer: str) -> None:
    """Every column of every point is kept; pages of it follow one another without a gap."""
    points = sorted(sweep(), key=lambda point: point.started_at, reverse=True)
    put(api, writer, points)
    whole = api.get("/v1/profiles/mine")
    read(ProfilePoints, json.dumps(whole))
    assert whole["points"] == rows(signed(points))["points"]
    assert whole["gpu_models"] == ["NVIDIA H200"]
    first = api.get("/v1/profiles/mine", limit=4)["points"]
    rest = api.get("/v1/profiles/mine", before=first[-1]["started_at"])["points"]
    assert ([*first, *rest], len(first)) == (whole["points"], 4)


def test_bad_profile_leaves_the_old_one(api: Api, writer: str) -> None:
    put(api, writer, sweep())
    before = api.get("/v1/profiles/mine")
    other_card = [*sweep(), *sweep(gpu_model="NVIDIA B200")]
    without_whole = [point for point in sweep() if point.share_percent < 100]
    wrong: list[tuple[list[SoloPoint], str]] = [
        (sweep("other"), "a point is of other"),
        (other_card, "NVIDIA B200 and NVIDIA H200"),
        (without_whole, "make no profile"),
        ([dataclasses.replace(point, rate=0.0) for point in sweep()], "make no profile"),
    ]
    for points, says in wrong:
        status, code, message = error_of(put(api, writer, points))
        assert (status, code) == (422, "bad-input")
        assert says in message
    assert api.get("/v1/profiles/mine") == before


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("rate", "12 img/s"),
        ("rate", -1),
        ("power_w", True),
        ("power_kw", 0.4),
        ("share_percent", 0),
        ("started_at", "yesterday"),
        ("flags", "noisy-rate"),
        ("rate_unit", "a\u0007b"),
    ],
)
def test_bad_point_is_refused_with_its_place(
    empty: Api, tokens: dict[str, str], column: str, value: Any
) -> None:
    """Units in the wrong place, texts for numbers and unknown columns never reach the store."""
    sent = rows(sweep())
    sent["points"][3][column] = value
    for method, path in (("PUT", "/v1/profiles/mine"), ("POST", "/v1/points")):
        status, code, message = error_of(empty.ask(method, path, tokens["write"], json=sent))
        assert (status, code) == (422, "bad-input")
        assert all(part in message for part in (column, "points[3]"))
    assert empty.service.store.solo_points() == []


def test_what_was_measured_together_is_found_in_any_order(api: Api, writer: str) -> None:
    mine = pair_point("fft", "gemm")
    api.post("/v1/points", rows([mine]), writer)
    found = api.get("/v1/pairs/gemm/fft/points")
    read(PairPoints, json.dumps(found))
    assert (found["jobs"], found["stored"]) == (["fft", "gemm"], list(map(to_row, signed([mine]))))
    assert {from_row(PairPoint, row).jobs for row in found["bundled"]} == {("fft", "gemm")}
    assert api.get("/v1/pairs/gemm/mine/points")["stored"] == []
    three = ("vit-serve-30", "bert-train-b2", "mobilenet-train-b2", "vit-serve-30")
    together = read(PairPoints, json.dumps(api.get(f"/v1/sets/{'+'.join(three)}/points")))
    assert {point.jobs for point in together.bundled} == {together.jobs} == {tuple(sorted(three))}
    assert error_of(api.ask("GET", "/v1/sets/fft/points"))[0] == 422


def test_jobs_say_where_profiles_are_from_and_what_can_be_launched(api: Api, writer: str) -> None:
    """A faulty job file makes a job that cannot be launched, not a list that cannot be read."""
    listed = api.get("/v1/jobs")
    read(JobList, json.dumps(listed))
    by_name = {row["job"]: row for row in listed["jobs"]}
    assert by_name["fft"]["source"] == "bundled"
    assert not by_name["fft"]["launchable"]
    assert by_name["mine"] == to_plain(JobRow(job="mine", launchable=True))
    assert "faulty" not in by_name
    put(api, writer, sweep())
    mine = api.get("/v1/jobs", after="matmul-fp32", limit=1)["jobs"]
    assert [(row["job"], row["source"], row["points"]) for row in mine] == [("mine", "stored", 10)]


def test_observations_are_kept_and_found_by_job(api: Api, writer: str) -> None:
    # Sharing may cost energy.
    mine = dataclasses.replace(observation(1), energy_saved=-0.4)
    other = observation(2, job_2="triad")
    sent = {"observations": [to_row(mine), to_row(other)]}
    assert api.post("/v1/observations", sent, writer) == {"read": 2, "new": 2}
    assert api.post("/v1/observations", sent, writer) == {"read": 2, "new": 0}
    found = api.get("/v1/observations")
    read(Observations, json.dumps(found))
    assert found["observations"] == list(map(to_row, signed([other, mine])))
    assert api.get("/v1/observations", job="sort")["observations"] == found["observations"][1:]
    # One of a day to come would be the newest for ever.
    for wrong in ({"state": "perhaps"}, {"started_at": "9999-12-31T00:00:00Z"}):
        bad = {"observations": [{**to_row(mine), **wrong}]}
        assert error_of(api.ask("POST", "/v1/observations", writer, json=bad))[0] == 422


def test_no_writer_takes_the_place_of_another(api: Api, writer: str) -> None:
    """Each id has who sent it, by their token and not by their word.

    Other values of a window that is there are refused, and so is another's profile to replace.
    """
    forger = api.token("write", "read")
    mine = observation(1)
    forged = dataclasses.replace(mine, launch_id="20260101-000000-ffff", written_by="write")
    for one, token in [(forged, forger), (mine, writer)]:
        assert api.post("/v1/observations", {"observations": [to_row(one)]}, token)["new"] == 1
    kept = {o["written_by"]: o["power_w"] for o in api.get("/v1/observations")["observations"]}
    assert kept == {"write-read": mine.power_w, "write": mine.power_w}
    other = to_row(dataclasses.replace(mine, power_w=7.0))
    status, code, said = error_of(
        api.ask("POST", "/v1/observations", api.token("admin"), json={"observations": [other]})
    )
    assert (status, code) == (409, "disputed")
    assert "write has sent other values" in said or "write-read has sent other values" in said
    assert put(api, writer, sweep()).status_code == 200
    for done in (put(api, forger, sweep()), api.ask("DELETE", "/v1/profiles/mine", forger)):
        status, code, said = error_of(done)
        assert (status, code) == (409, "disputed")
        assert "points of mine are of write" in said
    assert put(api, api.token("admin", "read"), sweep()).status_code == 200


def test_what_is_stored_unsigned_is_not_stored_again(api: Api, writer: str) -> None:
    """An import that is repeated over HTTP doubles nothing; other values are refused."""
    pair = pair_point("fft", "gemm")
    points = [*sweep(), pair]
    api.service.store.add(points)
    api.service.store.add([observation(1)])
    changed = dataclasses.replace(pair, power_w=7.0)
    done = api.post("/v1/points", {"points": [to_row(point) for point in points]}, writer)
    assert (done["read"], done["new"]) == (len(points), 0)
    refused = error_of(api.ask("POST", "/v1/points", writer, json={"points": [to_row(changed)]}))
    assert refused[:2] == (409, "disputed")
    assert "this site itself has sent other values" in refused[2]
    seen = {"observations": [to_row(observation(1)), to_row(observation(2))]}
    assert api.post("/v1/observations", seen, writer) == {"read": 2, "new": 1}


def test_every_write_is_audited_with_how_it_ended(api: Api, writer: str) -> None:
    """Who did what to what, with the request's id; a failed one says so."""
    admin = api.token("admin")
    done = put(api, writer, sweep())
    assert api.ask("DELETE", "/v1/profiles/nothing", writer).status_code == 404
    log = api.get("/v1/audit", admin)
    read(AuditLog, json.dumps(log))
    assert [(e["action"], e["subject"], e["outcome"]) for e in log["entries"][::-1]] == [
        ("profile.replace", "mine on NVIDIA H200", "begun"),
        ("profile.replace", "mine on NVIDIA H200", "done"),
        ("profile.delete", "nothing", "begun"),
        ("profile.delete", "nothing", "not-found"),
    ]
    last = log["entries"][-1]
    assert (last["who"], last["request_id"]) == ("write", done.headers["X-Request-Id"])
    older = api.get("/v1/audit", admin, limit=1, before=log["entries"][1]["number"])["entries"]
    assert older == [log["entries"][2]]


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("PUT", "/v1/profiles/fft", "read"),
        ("DELETE", "/v1/profiles/fft", "read"),
        ("POST", "/v1/points", "read"),
        ("POST", "/v1/observations", "launch"),
        ("POST", "/v1/models/bundled/promote", "write"),
        ("POST", "/v1/models/rollback", "write"),
        ("GET", "/v1/audit", "write"),
        ("POST", "/v1/launches", "write"),
        ("DELETE", "/v1/launches/x", "read"),
        ("POST", "/v1/launches/x/joins", "read"),
    ],
)
def test_changes_need_their_scope(
    empty: Api, tokens: dict[str, str], method: str, path: str, scope: str
) -> None:
    assert error_of(empty.ask(method, path))[:2] == (401, "unauthorized")
    assert error_of(empty.ask(method, path, tokens[scope]))[:2] == (403, "forbidden")
    assert empty.service.state.audit_log() == []


def test_what_is_not_there_is_404(empty: Api) -> None:
    assert empty.ask("GET", "/v1/profiles/fft?gpu_model=h200").status_code == 200
    for path in ("/v1/profiles/nope", "/v1/profiles/fft?gpu_model=A100", "/v1/models/v1"):
        assert error_of(empty.ask("GET", path))[:2] == (404, "not-found")


@pytest.mark.slow
def test_another_process_is_noticed_within_a_second(api: Api, tmp_path: Path) -> None:
    """Two services on one database: what one, or the command line, writes counts in both."""
    url = f"sqlite:///{tmp_path}/home/advisor.db"
    doubled = [dataclasses.replace(point, rate=2 * point.rate) for point in sweep()]
    with running(tmp_path / "other", ADVISOR_DATABASE_URL=url) as other:
        assert error_of(other.ask("POST", "/v1/recommendations", json=ASKED))[0] == 422
        put(api, api.token("write"), sweep())
        assert wait_until(lambda: _alone(other) == pytest.approx(_whole_rate(sweep())), 30)
        with open_store(None, tmp_path / "home") as store:
            store.replace_profile("mine", None, doubled)
        for side in (api, other):
            assert wait_until(lambda: _alone(side) == pytest.approx(_whole_rate(doubled)), 30)  # noqa: B023


def _alone(api: Api) -> float:
    """The rate alone that the next answer is made from; NaN where there is none."""
    answer = api.ask("POST", "/v1/recommendations", json=ASKED)
    return answer.json()["jobs"][0]["alone"]["rate"] if answer.is_success else math.nan


def _whole_rate(points: list[SoloPoint]) -> float:
    return next(point.rate for point in points if point.share_percent == 100)


# Records of sensors and measured kernels over HTTP: of this host, and those that are bundled.


SENSORS, KERNELS = "/v1/power/sensors", "/v1/power/kernels"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home in which one sensor and one kernel were measured."""
    keep_record(record(), tmp_path / "home")
    kernel_report(tmp_path / "home")
    return tmp_path / "home"


@pytest.fixture
def power_api(home: Path, bundled_power: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    monkeypatch.setattr(FOLDER_OF_BUNDLED, lambda: bundled_power)
    with running(home) as power_api:
        yield power_api


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "name", "count"),
    [(SENSORS, "sensors", 2), (KERNELS, "kernels", 3)],
)
def test_pages_have_each_one_once(power_api: Api, path: str, name: str, count: int) -> None:
    """The newest first, whatever is measured at the same moment."""
    page: dict[str, Any] = power_api.get(path, limit=1)
    found: list[Any] = page[name]
    while page["next"]:
        page = power_api.get(path, limit=1, cursor=page["next"])
        found += page[name]
    assert (len(found), found) == (count, power_api.get(path)[name])
    moments = [one["measured_at"] for one in found]
    assert moments == sorted(moments, reverse=True)


def test_by_gpu_model_and_moment(power_api: Api) -> None:
    assert power_api.get(SENSORS, gpu_model="Fake H200")["sensors"] == [to_plain(record())]
    assert power_api.get(KERNELS, gpu_model="NVIDIA H200") == {"kernels": [], "next": None}
    assert power_api.get(KERNELS, before="2020-01-01")["kernels"] == []
    assert error_of(power_api.ask("GET", KERNELS, params={"job": "gemm"}))[0] == 422
    assert error_of(power_api.ask("GET", SENSORS, params={"cursor": "x"}))[0] == 422


def test_damaged_files_are_named(power_api: Api, home: Path) -> None:
    (file,) = (home / SENSOR_RECORDS.name).glob("*.json")
    file.write_text("{}")
    assert error_of(power_api.ask("GET", SENSORS))[1] == StoreError.code
    file.unlink()
    keep_record(replace(record(), measured_at="yesterday"), home)
    assert error_of(power_api.ask("GET", SENSORS))[1] == StoreError.code


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


# Models over HTTP: listing, promoting and rolling back, with copies of the bundled model.


@pytest.fixture
def two_models(tmp_path: Path) -> Iterator[Api]:
    """A service on a new home with two models next to the bundled one."""
    home = tmp_path / "home"
    add_model(home, "v1", evaluation={"jobs": [{"job": "fft"}]})
    add_model(home, "v2")
    with running(home) as two_models:
        yield two_models


@pytest.fixture
def admin(two_models: Api) -> str:
    return two_models.token("admin")


def add_model(home: Path, version: str, evaluation: Any = None, leaves: float = 1.0) -> None:
    folder = home.parent / f"trained-{version}"
    shutil.copytree(BUNDLED, folder)
    manifest = read_artefact(folder).manifest
    files = {name: hash_ for name, hash_ in manifest.files.items() if name != "evaluation.json"}
    if evaluation:
        text = json.dumps(evaluation).encode()
        (folder / "evaluation.json").write_bytes(text)
        files["evaluation.json"] = sha256(text)
    for trees in folder.glob("*.trees"):
        nodes = np.frombuffer(trees.read_bytes(), NODE).copy()
        nodes["number"][nodes["feature"] == LEAF] *= leaves
        trees.write_bytes(nodes.tobytes())
        files[trees.name] = sha256(nodes.tobytes())
    write_artefact(
        folder, Artefact(dataclasses.replace(manifest, version=version, files=files), {})
    )
    with free_names():
        Registry(home / "models").add(folder)


def version_of_answer(two_models: Api) -> str:
    return two_models.post("/v1/recommendations", OF_FFT)["model"]["version"]


def test_promotion_and_rollback_count_at_once(two_models: Api, admin: str) -> None:
    bundled = version_of_answer(two_models)
    done = two_models.post("/v1/models/v1/promote", None, admin)
    assert done == {"champion": "v1", "replaced": "bundled"}
    assert version_of_answer(two_models) == "v1"
    done = two_models.post("/v1/models/rollback", None, admin)
    assert done == {"champion": "bundled", "replaced": "v1"}
    assert version_of_answer(two_models) == bundled
    assert error_of(two_models.ask("POST", "/v1/models/rollback", admin))[:2] == (409, "conflict")


def test_models_are_listed_with_their_history(two_models: Api, admin: str) -> None:
    """The champion first; every change is there with what it replaced, the newest first."""
    two_models.post("/v1/models/v2/promote", None, admin)
    two_models.post("/v1/models/bundled/promote", None, admin)
    listed = two_models.get("/v1/models")
    read(ModelList, json.dumps(listed))
    first = listed["models"][0]
    assert (first["model"], first["champion"]) == ("bundled", True)
    assert {row["model"] for row in listed["models"]} == {"bundled", "v1", "v2"}
    changes = [(c["action"], c["version"], c["replaced"]) for c in listed["history"]]
    assert changes == [("promote", "bundled", "v2"), ("promote", "v2", "bundled")]
    assert len(two_models.get("/v1/models", limit=1)["history"]) == 1


def test_damaged_model_spoils_neither_the_list_nor_the_service(
    two_models: Api, admin: str, tmp_path: Path
) -> None:
    """It is listed with its fault, cannot be promoted, and answers go on by the champion."""
    (tmp_path / "home/models/versions/v1/power.trees").write_bytes(b"damaged")
    rows = {row["model"]: row for row in two_models.get("/v1/models")["models"]}
    assert "SHA-256" in rows["v1"]["error"]
    for method, path in (("POST", "/v1/models/v1/promote"), ("GET", "/v1/models/v1")):
        assert error_of(two_models.ask(method, path, admin))[:2] == (503, "model")
    assert version_of_answer(two_models) == read_artefact(BUNDLED).manifest.version
    outcomes = [entry["outcome"] for entry in two_models.get("/v1/audit", admin)["entries"]]
    assert outcomes == ["model", "begun"]


def test_evaluation_is_served_where_the_model_carries_it(two_models: Api) -> None:
    assert two_models.ask("GET", "/v1/models/v1/evaluation").json() == {"jobs": [{"job": "fft"}]}
    assert error_of(two_models.ask("GET", "/v1/models/v2/evaluation"))[:2] == (404, "not-found")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v3", "..", ".adding-v1", "v1%2F..%2Fv2"])
def test_names_that_are_no_models(two_models: Api, admin: str, name: str) -> None:
    status, code, _ = error_of(two_models.ask("POST", f"/v1/models/{name}/promote", admin))
    assert (status, code) in {(404, "not-found"), (422, "bad-input"), (405, "method-not-allowed")}
    assert two_models.get("/v1/models")["history"] == []


@pytest.mark.slow
def test_no_answer_has_fields_of_two_models(tmp_path: Path) -> None:
    """Four ask meanwhile: each answer is byte for byte that of one, and all are taken up."""
    home, stop = tmp_path / "home", threading.Event()
    for version, leaves in (("v1", 1.0), ("v2", 0.8)):
        add_model(home, version, leaves=leaves)
    pairs = itertools.combinations(("bert-infer", "fft", "gemm", "triad", "vit-train"), 2)
    bodies = [{"jobs": [{"job": a}, {"job": b}]} for a, b in pairs]

    def said(number: int) -> tuple[int, bytes]:
        return number, two_models.ask("POST", "/v1/recommendations", json=bodies[number]).content

    def taken_up(version: str) -> set[tuple[int, bytes]]:
        Registry(home / "models").promote(version)  # as another process does
        assert wait_until(lambda: version_of_answer(two_models) == version, PATIENCE_S)
        return {said(number) for number in range(len(bodies))}

    def client() -> set[tuple[int, bytes]]:
        numbers = itertools.cycle(range(len(bodies)))
        return {
            said(number) for number in itertools.takewhile(lambda _: not stop.is_set(), numbers)
        }

    with running(home) as two_models, ThreadPoolExecutor(4) as pool:
        of_one, of_other = taken_up("v1"), taken_up("v2")
        clients = [pool.submit(client) for _ in range(4)]
        try:
            assert [taken_up("v1"), taken_up("v2")] == [of_one, of_other]
        finally:
            stop.set()
    assert not of_one & of_other
    asked = {answer for one in clients for answer in one.result()}
    assert asked & of_one
    assert asked <= of_one | of_other
