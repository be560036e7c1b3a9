"""Jobs, profiles, points and observations: the calls about what was measured."""

from collections.abc import Iterable
from typing import Any, TypeVar

from advisor.client.exchange import Ask, Exchange, quoted
from advisor.core.observations import Observation, Record
from advisor.core.records import Point, SoloPoint
from advisor.core.split import ADVISED_JOBS
from advisor.core.wording import shown
from advisor.errors import InputError
from advisor.formats.rows import to_row
from advisor.validity.sensor_record import SensorRecord, SensorRecords
from advisor.wire.answers import ComponentsOfJob, ComponentsOfPair
from advisor.wire.lists import (
    Deleted,
    JobList,
    JobRow,
    Observations,
    PairPoints,
    ProfilePoints,
    Stored,
    TakenIn,
)
from advisor.wire.power import KernelReport, KernelReports

Paged = TypeVar("Paged", SensorRecords, KernelReports)

_MOST = 1000
"""Entries of one answer."""

_AT_ONCE = 500
"""Records in one request, so that its body stays below 1 MiB."""


class Recorded(Exchange):
    """Calls about what was measured."""

    def jobs(self) -> tuple[JobRow, ...]:
        """All jobs that were measured or can be launched, by name; one row for each GPU model."""
        rows: list[JobRow] = []
        while True:
            after = rows[-1].job if rows else None
            page = self._get("/v1/jobs", JobList, limit=_MOST, after=after).jobs
            rows += page
            if len({row.job for row in page}) < _MOST:
                return tuple(rows)

    def profile(self, job: str, *, gpu_model: str | None = None) -> ProfilePoints:
        """The points that predictions of a job are made from: the newest thousand."""
        return self._get(_of_job(job), ProfilePoints, gpu_model=gpu_model, limit=_MOST)

    def job_components(self, job: str, *, gpu_model: str | None = None) -> ComponentsOfJob:
        """What the power of a job alone goes to, at each share at which it was measured."""
        return self._get(f"{_of_job(job)}/components", ComponentsOfJob, gpu_model=gpu_model)

    def pair_components(
        self, job_a: str, job_b: str, *, gpu_model: str | None = None
    ) -> ComponentsOfPair:
        """What the power of two jobs together goes to, at each split."""
        path = f"/v1/pairs/{quoted(job_a)}/{quoted(job_b)}/components"
        return self._get(path, ComponentsOfPair, gpu_model=gpu_model)

    def put_profile(self, job: str, points: Iterable[SoloPoint]) -> int:
        """Replace the stored points of a job on their GPU model; gives how many are stored now."""
        ask = Ask(method="PUT", path=_of_job(job), body={"points": _rows(points)})
        return self._ask(ask, Stored).stored

    def delete_profile(self, job: str, *, gpu_model: str | None = None) -> int:
        """Forget the stored points of a job, of one GPU model or of all; gives how many those were.

        A bundled profile stays, and is used from then on.
        """
        # Not repeated: what the first request did, the second would report as an error.
        query = {"gpu_model": gpu_model}
        ask = Ask(method="DELETE", path=_of_job(job), query=query, repeatable=False)
        return self._ask(ask, Deleted).deleted

    def import_points(self, points: Iterable[Point]) -> TakenIn:
        """Bring in solo and pair points; those that are there already are left as they are.

        Many go in several requests. After an error the same points can be brought in again.
        """
        return self._take_in("/v1/points", "points", _rows(points))

    def pair_points(self, *jobs: str, gpu_model: str | None = None) -> PairPoints:
        """What was measured of two to seven jobs together: the newest thousand of either source."""
        path = f"/v1/sets/{'+'.join(map(quoted, jobs))}"
        if len(jobs) == ADVISED_JOBS:
            path = f"/v1/pairs/{'/'.join(map(quoted, jobs))}"
        return self._get(f"{path}/points", PairPoints, gpu_model=gpu_model, limit=_MOST)

    def observe(self, observations: Iterable[Observation]) -> TakenIn:
        """Bring in what launched pairs did; as `import_points`."""
        return self._take_in("/v1/observations", "observations", _rows(observations))

    def observations(
        self,
        *,
        job: str | None = None,
        gpu_model: str | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> tuple[Observation, ...]:
        """What launched pairs did, the newest first.

        Args:
            job: Only pairs with it.
            gpu_model: Only on this GPU model.
            limit: At most this many, up to 1000; and those that began with the last one.
            before: Only those that began before this moment, ISO 8601.
        """
        query = {"job": job, "gpu_model": gpu_model, "limit": limit, "before": before}
        return self._get("/v1/observations", Observations, **query).observations

    def sensors(self, *, gpu_model: str | None = None) -> tuple[SensorRecord, ...]:
        """How cards read their power, newest first: of the service's host, and bundled."""
        pages = self._pages("/v1/power/sensors", gpu_model, SensorRecords)
        return tuple(record for page in pages for record in page.sensors)

    def kernels(self, *, gpu_model: str | None = None) -> tuple[KernelReport, ...]:
        """What measured kernels draw, the newest first: of the service's host, and bundled."""
        pages = self._pages("/v1/power/kernels", gpu_model, KernelReports)
        return tuple(report for page in pages for report in page.kernels)

    def _pages(self, path: str, gpu_model: str | None, kind: type[Paged]) -> list[Paged]:
        found: list[Paged] = []
        while True:
            cursor = found[-1].next if found else None
            found.append(self._get(path, kind, gpu_model=gpu_model, cursor=cursor))
            if found[-1].next is None:
                return found

    def _take_in(self, path: str, name: str, rows: list[dict[str, Any]]) -> TakenIn:
        taken = TakenIn(read=0, new=0)
        for start in range(0, len(rows), _AT_ONCE):
            ask = Ask(method="POST", path=path, body={name: rows[start : start + _AT_ONCE]})
            taken += self._ask(ask, TakenIn)
        return taken


def _rows(records: Iterable[Record]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for record in records:
        if not isinstance(record, Record):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(
                f"{shown(record)} is neither a point nor an observation",
                fix="give SoloPoint, PairPoint or Observation; `advisor data import` takes files",
            )
        rows.append(to_row(record))
    return rows


def _of_job(job: str) -> str:
    return f"/v1/profiles/{quoted(job)}"
