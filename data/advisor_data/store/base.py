"""What a store of records answers; nothing here loads SQLAlchemy."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Self

from advisor.core.records import Observation, PairPoint, Record, SoloPoint
from advisor.formats.rows import P
from advisor_data.store.pages import Page, Span
from advisor_data.store.profile_rows import ProfileRow


class Store(ABC):
    """Keeps points, and what launched pairs did; several processes may use the same one at once."""

    @abstractmethod
    def add(self, points: Iterable[Record]) -> int:
        """Keep points, of one kind or mixed; they are on disk when this returns.

        The answer is how many were new; one whose `point_id` is already there changes nothing.

        Raises:
            InputError: a point that could not be read back, such as a negative rate.
            StoreError: the points could not be kept; those kept before are safe.
        """

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

    def solo_page(self, job: str, span: Span) -> Page[SoloPoint]:
        """A page of a job's solo points, the newest first."""
        return self._page(SoloPoint, [job], span)

    def pair_page(self, jobs: Sequence[str], span: Span) -> Page[PairPoint]:
        """A page of what was measured of these jobs together, in whichever order they come."""
        return self._page(PairPoint, jobs, span)

    @abstractmethod
    def observation_page(self, job: str | None, span: Span) -> Page[Observation]:
        """A page of what launched jobs did: those with a job, or all."""

    @abstractmethod
    def profile_names(self, after: str = "", limit: int = 1000) -> list[str]:
        """Names of jobs with solo points, in order: those behind one, so many at most."""

    @abstractmethod
    def profile_rows(self, first: str, last: str) -> list[ProfileRow]:
        """What lists say of the jobs whose names lie between two, these as well.

        One row for each job on each GPU model, in their order.
        """

    def close(self) -> None:  # noqa: B027 files are not held open
        """Let go of what is held open between calls."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @abstractmethod
    def _points(
        self,
        kind: type[P],
        jobs: Sequence[str] | None = None,
        gpu_model: str | None = None,
        run: str | None = None,
    ) -> list[P]: ...

    @abstractmethod
    def _page(self, kind: type[P], jobs: Sequence[str], span: Span) -> Page[P]: ...


class Database(Store):
    """A store whose points can be replaced and deleted as well."""

    @abstractmethod
    def replace_profile(self, job: str, gpu_model: str | None, points: Iterable[SoloPoint]) -> int:
        """Put these points in the place of all solo points of a job, on one GPU model or on all.

        The answer is how many are kept now.

        Raises:
            InputError: no points, or one of another job or GPU model.
            StoreError: the points could not be kept; the old ones are all there.
        """

    @abstractmethod
    def delete_profile(self, job: str, gpu_model: str | None = None) -> int:
        """Forget all solo points of a job, of one GPU model or of all; how many went.

        Raises:
            StoreError: they could not be removed.
        """

    @abstractmethod
    def delete(self, points: Iterable[Record]) -> int:
        """Forget those of these points that are there, of one kind or mixed; how many went.

        Raises:
            StoreError: they could not be removed.
        """
