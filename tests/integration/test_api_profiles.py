"""Jobs, profiles, points, observations and the audit log over HTTP, on a real SQLite file."""

import dataclasses
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from flat_records import changed
from in_process import Api, error_of, running
from reading import answer_of
from store_points import observation

from advisor.core.records import PairPoint, SoloPoint
from advisor.formats.rows import P, from_row, to_row
from advisor.formats.wire import read, to_plain
from advisor.runtime.processes import wait_until
from advisor.wire.lists import AuditLog, JobList, JobRow, Observations, PairPoints, ProfilePoints
from advisor_data import open_store
from advisor_data.bundled import bundled_pair_points, bundled_solo_points

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
    """Each id has who sent it, by their token and not by their word."""
    forger = api.token("write", "read")
    mine = observation(1)
    forged = dataclasses.replace(mine, power_w=7.0, written_by="write")
    for sent, token in ((forged, forger), (mine, writer)):
        assert api.post("/v1/observations", {"observations": [to_row(sent)]}, token)["new"] == 1
    kept = {o["written_by"]: o["power_w"] for o in api.get("/v1/observations")["observations"]}
    assert kept == {"write-read": 7.0, "write": mine.power_w}


def test_what_is_stored_unsigned_is_not_stored_again(api: Api, writer: str) -> None:
    """An import that is repeated over HTTP doubles nothing; other values are kept."""
    pair = pair_point("fft", "gemm")
    points = [*sweep(), pair]
    api.service.store.add(points)
    api.service.store.add([observation(1)])
    changed = dataclasses.replace(pair, power_w=7.0)
    sent = {"points": [to_row(point) for point in [*points, changed]]}
    done = api.post("/v1/points", sent, writer)
    assert (done["read"], done["new"]) == (len(points) + 1, 1)
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
