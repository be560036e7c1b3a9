"""The store of records: a JSON document each, in the table of its kind, and pages of them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, delete, func, insert, select, tuple_

from advisor.core.records import PARTS, SEEN, Observation, PairPoint, Record, SoloPoint
from advisor.errors import InputError
from advisor.formats.rows import JOBS, P, checked, column_types, from_row, to_row
from advisor_data.database import OpenDatabase, count_change, insert_new, profiles, tables
from advisor_data.lists import MOST_OF_MOMENT, Page, ProfileRow, Span, cut, position, profile_rows

# Identities in one question; databases bound their number.
_AT_ONCE = 1000


class Store(OpenDatabase):
    """Keeps points, and what launched pairs did; several processes may use the same one at once.

    Methods that write raise a StoreError where they could not; then all is as it was before.
    """

    def add(self, points: Iterable[Record], *, renew: bool = False) -> int:
        """Keep points, of one kind or mixed: all or none; they are on disk when this returns.

        The answer is how many were new; one whose `point_id` is already there changes nothing, but
        with `renew`, or the flag `seen`, it takes the place of the one there.

        Raises:
            InputError: a point that could not be read back, such as a negative rate.
        """
        ordered = _in_writing_order(checked(points))
        if not ordered:
            return 0
        jobs = {point.job for point in ordered if isinstance(point, SoloPoint)}
        with self._writing() as connection:
            if jobs:
                count_change(connection)
            # What was seen of a process takes the place of what was seen of its beginning.
            _delete(connection, [p for p in ordered if renew or SEEN in p.flags])
            new = sum(_insert(connection, kind, ordered) for kind in tables)
            _renew(connection, jobs)
            return new

    def solo_points(
        self, *, job: str | None = None, gpu_model: str | None = None, run: str | None = None
    ) -> list[SoloPoint]:
        """Points in the order of `started_at`, all or those that match."""
        return self._points(SoloPoint, None if job is None else [job], gpu_model, run)

    def pair_points(
        self,
        *,
        jobs: Sequence[str] | None = None,
        gpu_model: str | None = None,
        run: str | None = None,
    ) -> list[PairPoint]:
        """As `solo_points`, of exactly these jobs together, in whichever order their names come."""
        return self._points(PairPoint, jobs, gpu_model, run)

    def observations(
        self, *, jobs: Sequence[str] | None = None, gpu_model: str | None = None
    ) -> list[Observation]:
        """As `pair_points`, for what launched jobs did."""
        return self._points(Observation, jobs, gpu_model)

    def together(self) -> frozenset[tuple[str, ...]]:
        """Names of jobs, sorted, that were measured or launched together; on any GPU model."""
        found = set[str]()
        with self._reading() as connection:
            for kind in (PairPoint, Observation):
                # From name to name in the index: a million records are of few sets.
                names = tables[kind].c.jobs
                first = select(func.min(names).label("jobs")).cte("together", recursive=True)
                later = select(func.min(names)).where(names > first.c.jobs).scalar_subquery()
                every = first.union_all(select(later).where(first.c.jobs.is_not(None)))
                found |= set(connection.execute(select(every.c.jobs)).scalars())
        return frozenset(tuple(json.loads(jobs)) for jobs in found if jobs)

    def page(self, kind: type[P], jobs: Sequence[str], span: Span) -> Page[P]:
        """A page of the records of exactly these jobs, the newest first; names in any order."""
        return self._page(kind, [_is_of(kind, jobs)], span)

    def observation_page(self, job: str | None, span: Span) -> Page[Observation]:
        """A page of what launched jobs did: those with a job, or all."""
        jobs = tables[Observation].c.jobs
        # LIKE knows no difference between small and capital letters in SQLite.
        named = func.replace(jobs, json.dumps(job, ensure_ascii=False), "") != jobs
        return self._page(Observation, [] if job is None else [named], span)

    def profile_names(self, after: str = "", limit: int = 1000) -> list[str]:
        """Names of jobs with solo points, in order: those behind one, so many at most."""
        job = profiles.c.job
        wanted = select(job).where(job > after).distinct().order_by(job).limit(limit)
        with self._reading() as connection:
            return list(connection.execute(wanted).scalars())

    def profile_rows(self, first: str, last: str) -> list[ProfileRow]:
        """What lists say of the jobs whose names lie between two, these as well.

        One row for each job on each GPU model, in their order; no list reads a million points.
        """
        job, model = profiles.c.job, profiles.c.gpu_model
        wanted = select(profiles.c.document).where(job >= first, job <= last).order_by(job, model)
        with self._reading() as connection:
            return [ProfileRow.of(row) for row in connection.execute(wanted).scalars()]

    def replace_profile(self, job: str, gpu_model: str | None, points: Iterable[SoloPoint]) -> int:
        """Replace all solo points of a job with these, on one GPU model or on all.

        The answer is how many are kept now.

        Raises:
            InputError: no points, or one of another job or GPU model.
        """
        ordered = _in_writing_order(_only_of(job, gpu_model, points))
        with self._writing() as connection:
            count_change(connection)
            _delete_profile(connection, job, gpu_model)
            stored = _insert(connection, SoloPoint, ordered)
            _renew(connection, [job])
            return stored

    def delete_profile(self, job: str, gpu_model: str | None = None) -> int:
        """Forget all solo points of a job, of one GPU model or of all; how many went."""
        with self._writing() as connection:
            count_change(connection)
            deleted = _delete_profile(connection, job, gpu_model)
            _renew(connection, [job])
            return deleted

    def delete(self, points: Iterable[Record]) -> int:
        """Forget those of these points that are there, of one kind or mixed; how many went."""
        ordered = _in_writing_order(points)
        with self._writing() as connection:
            count_change(connection)
            deleted = _delete(connection, ordered)
            _renew(connection, {point.job for point in ordered if isinstance(point, SoloPoint)})
            return deleted

    def _points(
        self,
        kind: type[P],
        jobs: Sequence[str] | None = None,
        gpu_model: str | None = None,
        run: str | None = None,
    ) -> list[P]:
        table, named = tables[kind], {"gpu_model": gpu_model, "run": run}
        matches = [table.c[name] == text for name, text in named.items() if text is not None]
        if jobs is not None:
            matches.append(_is_of(kind, jobs))
        wanted = select(table.c.document).where(*matches)
        with self._reading() as connection:
            return _read(connection, kind, wanted.order_by(table.c.started_at_us, table.c.point_id))

    def _page(self, kind: type[P], matches: Sequence[ColumnElement[bool]], span: Span) -> Page[P]:
        table, matches = tables[kind], list(matches)
        moment, place = table.c.started_at_us, tuple_(table.c.started_at_us, table.c.point_id)
        if span.gpu_model is not None:
            matches.append(table.c.gpu_model == span.gpu_model)
        if span.before_us is not None:
            matches.append(moment < span.before_us)
        if span.after is not None:
            after = span.after.started_at_us, span.after.point_id
            # The first is for the index, which the second alone would not use everywhere.
            matches += [moment <= span.after.started_at_us, place < after]
        newest = moment.desc(), table.c.point_id.desc()
        wanted = select(table.c.document).where(*matches).order_by(*newest)
        most = wanted.limit(span.limit + MOST_OF_MOMENT + 1)
        with self._reading() as connection:
            # Row by row: a page mostly ends long before all of one moment that it may have.
            streaming = connection.execution_options(stream_results=True)
            return cut((_record(kind, row) for row in streaming.execute(most).scalars()), span)


def renew_all(connection: Connection) -> None:
    """Make the rows of profiles anew of all points, as after a migration."""
    connection.execute(delete(profiles))
    jobs = connection.execute(select(tables[SoloPoint].c.jobs).distinct()).scalars()
    _renew(connection, [json.loads(names)[0] for names in jobs])


def row_of(record: Record) -> dict[str, Any]:
    """The record as a row of its table."""
    where, document = position(record), _filled(to_row(record))
    if JOBS in document:
        document[JOBS] = [_filled(part) for part in document[JOBS]]
    return {
        "point_id": where.point_id,
        "jobs": _names([record.job] if isinstance(record, SoloPoint) else record.jobs),
        "gpu_model": record.gpu_model,
        "run": record.launch_id if isinstance(record, Observation) else record.run,
        "started_at_us": where.started_at_us,
        "document": document,
    }


def _filled(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


def _record(kind: type[P], document: Mapping[str, Any]) -> P:
    """The record of a document; columns of a newer version are left out."""
    known = column_types(kind)
    row = {name: value for name, value in document.items() if name in known}
    if kind in PARTS:
        of_part = column_types(PARTS[kind])
        row[JOBS] = [{n: v for n, v in part.items() if n in of_part} for part in document[JOBS]]
    return from_row(kind, row)


def _read(connection: Connection, kind: type[P], wanted: Select[Any]) -> list[P]:
    return [_record(kind, document) for document in connection.execute(wanted).scalars()]


def _names(jobs: Iterable[str]) -> str:
    """Names of jobs in one column, by which the records of exactly these jobs are found."""
    return json.dumps(sorted(jobs), ensure_ascii=False)


def _is_of(kind: type[Record], jobs: Iterable[str]) -> ColumnElement[bool]:
    return tables[kind].c.jobs == _names(jobs)


def _in_writing_order(points: Iterable[P]) -> list[P]:
    """One order in all writers, so that two of them cannot wait for each other."""
    return sorted(points, key=lambda point: point.point_id)


def _delete(connection: Connection, records: Iterable[Record]) -> int:
    """Delete the records that are stored; returns their number."""
    return sum(
        connection.execute(delete(table).where(table.c.point_id == record.point_id)).rowcount
        for record in records
        for table in [tables[type(record)]]
    )


def _insert(connection: Connection, kind: type[Record], records: Iterable[Record]) -> int:
    """Put in those of a kind that are not there yet; how many were new."""
    mine = [record for record in records if type(record) is kind]
    known = _known_unsigned(connection, kind, mine)
    rows = [row_of(record) for record in mine if record.point_id not in known]
    return connection.execute(insert_new(connection, tables[kind]), rows).rowcount if rows else 0


def _known_unsigned(
    connection: Connection, kind: type[Record], records: Sequence[Record]
) -> set[str]:
    """Identities of those that are stored just so, but unsigned: imported, or of older versions."""
    signed = [record for record in records if record.written_by]
    found, table = set[str](), tables[kind]
    for begin in range(0, len(signed), _AT_ONCE):
        some = {replace(one, written_by=None): one.point_id for one in signed[begin:][:_AT_ONCE]}
        ids = [one.point_id for one in some]
        wanted = select(table.c.document).where(table.c.point_id.in_(ids))
        stored = set(_read(connection, kind, wanted))
        found |= {of for one, of in some.items() if one in stored}
    return found


def _only_of(job: str, gpu_model: str | None, points: Iterable[SoloPoint]) -> list[SoloPoint]:
    """The points of a job's new profile, as they will be read back, each once.

    Raises:
        InputError: there are none, one is of another job or GPU model, or could not be read back.
    """
    found = {point.point_id: point for point in checked(points)}
    for point in found.values():
        if point.job != job or gpu_model not in (None, point.gpu_model):
            raise InputError(
                f"a point of {point.job} on {point.gpu_model} is not part of the profile of {job}"
                + (f" on {gpu_model}" if gpu_model else ""),
                fix="give points of that job and GPU model only",
            )
    if not found:
        raise InputError(
            f"a profile of {job} without points", fix="delete the profile, or give its points"
        )
    return list(found.values())


def _delete_profile(connection: Connection, job: str, gpu_model: str | None) -> int:
    matches = [_is_of(SoloPoint, [job])]
    if gpu_model is not None:
        matches.append(tables[SoloPoint].c.gpu_model == gpu_model)
    return connection.execute(delete(tables[SoloPoint]).where(*matches)).rowcount


def _renew(connection: Connection, jobs: Iterable[str]) -> None:
    """Make the rows of profiles of these jobs of their points."""
    for job in sorted(jobs):
        connection.execute(delete(profiles).where(profiles.c.job == job))
        wanted = select(tables[SoloPoint].c.document).where(_is_of(SoloPoint, [job]))
        for row in profile_rows(_read(connection, SoloPoint, wanted)):
            named = {"job": job, "gpu_model": row.gpu_model, "document": asdict(row)}
            connection.execute(insert(profiles).values(named))
