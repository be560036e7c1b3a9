"""Who asks to join a set that runs, on a clock of its own."""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from joining import to_join
from scripted_jobs import Script, ScriptedJob, Watch, at_once

from advisor.core.interval import Interval
from advisor.core.job import Job
from advisor.errors import LimitNotProvenError
from advisor.launch import newcomers
from advisor.launch.folder import (
    LaunchFolder,
    ask_join,
    create_folder,
    join_status,
)
from advisor.launch.newcomers import Newcomers
from advisor.launch.spec import Forecast, JobForecast, LaunchPart
from advisor.launch.status import JobStatus
from advisor.runtime.backend import Backend

THIRD = LaunchPart(job=Job(name="c", command=("true",)), min_speed=0.3)


RATE = Interval(50, 40, 60)


FORECAST = Forecast(
    model_version="m", jobs=(JobForecast(rate=RATE, solo_rate=100.0),) * 3,
    power_w=Interval(500, 450, 550), work_per_joule=Interval(0.002, 0.001, 0.003), coverage=0.9,
)  # fmt: skip


Ask = Callable[..., JobStatus]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    found = Watch(monkeypatch)

    def prove(job: Job, *_: Any) -> SimpleNamespace:
        one = ScriptedJob(job, Script(), found.clock, found.backend)
        return SimpleNamespace(start=lambda: _ready(one))

    monkeypatch.setattr(newcomers, "prove", prove)
    return found


def _ready(job: ScriptedJob) -> ScriptedJob:
    cast("Any", job).ready_to_launch = lambda: True
    return job


@pytest.fixture
def folder(watch: Watch, tmp_path: Path) -> LaunchFolder:
    return create_folder(tmp_path / "home" / "launches", watch.spec)


@pytest.fixture
def ask(watch: Watch, folder: LaunchFolder) -> Ask:
    backend = cast("Backend", watch.backend)
    coming = Newcomers(folder, 0, watch.monitor, backend, {}, pytest.fail, at_once)

    def asked(forecast: Forecast | None = None) -> JobStatus:
        request = to_join(THIRD, *watch.spec.pairs[0].parts, share_percent=30.0, forecast=forecast)
        name = ask_join(folder, request)
        for _ in range(5):
            coming.look()
        return join_status(folder, name, request)

    return asked


@pytest.mark.parametrize(("places", "code"), [(2, None), (1, None), (0, "no-split")])
def test_the_last_place_of_the_server_is_one(
    watch: Watch, ask: Ask, places: int, code: str | None
) -> None:
    watch.backend.max_clients = places
    said = ask()
    assert (said.code, len(watch.monitor.jobs)) == (code, 3 - bool(code))


def test_newcomer_that_has_finished_before_it_was_ready_has_joined(
    watch: Watch, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = ScriptedJob(THIRD.job, Script(ends_s=0), watch.clock, watch.backend)

    def prove(*_: object) -> SimpleNamespace:
        return SimpleNamespace(start=lambda: short)

    monkeypatch.setattr(newcomers, "prove", prove)
    assert ask().joined_at
    watch.go_on(0.5)
    assert watch.outcomes == ["running", "running", "finished"]


def test_jobs_that_run_are_watched_while_a_limit_is_proven(
    watch: Watch, folder: LaunchFolder
) -> None:
    proofs = list[Future[Any]]()

    def run(_: Callable[[], Any], /) -> Future[Any]:
        proofs.append(Future())
        return proofs[-1]

    backend = cast("Backend", watch.backend)
    coming = Newcomers(folder, 0, watch.monitor, backend, {}, pytest.fail, run)
    request = to_join(THIRD, share_percent=30.0)
    name = ask_join(folder, request)
    for _ in range(5):
        coming.look()
    said = join_status(folder, name, request)
    assert (len(proofs), bool(coming.coming), said.outcome) == (1, True, "waiting")
    proofs[0].set_exception(LimitNotProvenError("another SM count"))
    coming.look()
    coming.look()
    said = join_status(folder, name, request)
    assert (said.code, coming.coming) == ("limit-not-proven", None)


def test_what_is_expected_is_of_those_that_run(watch: Watch, ask: Ask) -> None:
    assert ask(FORECAST).predicted_rate == RATE
    assert [one.expected for one in watch.monitor.jobs] == [RATE] * 3
    stale = ask(FORECAST)
    assert (stale.code, stale.predicted_rate) == (None, None)
    assert [one.expected for one in watch.monitor.jobs] == [None] * 4
