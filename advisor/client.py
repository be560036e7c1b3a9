"""The client of the service: `Client` with a method for each route, and its errors.

docs/client.md shows how. It needs httpx, which the extra `client` brings.
"""

import math
import re
import secrets
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeAlias, TypeVar, cast
from urllib.parse import quote, urlsplit

import advisor
from advisor.core.gpu import ADVISED_JOBS
from advisor.core.records import Observation, Point, Record, SoloPoint
from advisor.core.wording import shown
from advisor.errors import AdvisorError, InputError, install
from advisor.formats.rows import to_row
from advisor.formats.wire import T, read, to_plain, values_in, write
from advisor.launch.folder import History, LaunchList, Overview
from advisor.launch.spec import JobStatus, LaunchSpec, LaunchStatus
from advisor.validity.sensor_record import SensorRecord, SensorRecords
from advisor.wire.answers import (
    AuditEntry,
    AuditLog,
    BatchAnswer,
    BatchItem,
    Champion,
    ComponentsOfJob,
    Deleted,
    Gains,
    JobList,
    JobRow,
    ModelDetails,
    ModelList,
    Observations,
    PairPoints,
    Placement,
    ProfilePoints,
    Recommendation,
    Stored,
    TakenIn,
)
from advisor.wire.power import (
    InputPowerRequest,
    InputPrediction,
    InputPredictions,
    InputQuery,
    KernelReport,
    KernelReports,
)
from advisor.wire.requests import (
    BatchRequest,
    GainsRequest,
    JobCopies,
    JobRequest,
    LaunchRequest,
    PlacementRequest,
    QueuedJobs,
    RecommendationRequest,
)

try:
    import httpx
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"advisor.client needs httpx, which is not installed: {install('client')}",
        name="httpx",
    ) from error

__all__ = [
    "AnswerError",
    "ApiError",
    "AuditEntry",
    "BatchItem",
    "Champion",
    "Client",
    "ClientError",
    "Gains",
    "GainsRequest",
    "InputPrediction",
    "InputPredictions",
    "InputQuery",
    "JobCopies",
    "JobRequest",
    "JobRow",
    "JobStatus",
    "KernelReport",
    "LaunchRequest",
    "LaunchSpec",
    "LaunchStatus",
    "ModelDetails",
    "ModelList",
    "PairPoints",
    "Placement",
    "PlacementRequest",
    "ProfilePoints",
    "QueuedJobs",
    "Recommendation",
    "RecommendationRequest",
    "SensorRecord",
    "TakenIn",
    "TooSlowError",
    "UnreachableError",
]

Paged = TypeVar("Paged", SensorRecords, KernelReports)

Verify: TypeAlias = bool | str | Path | ssl.SSLContext
"""True: a certificate that the system trusts; a file: one that is signed by those in it; False:
any, so that every host on the way can read the token."""

# A launch says once a second how it stands.
_LOOK_EVERY_S = 1.0

# How the address of a Unix socket begins.
_UNIX = "unix:"

# Of one answer; the largest, a placement of many jobs, has some tens of millions.
_LARGEST_BYTES = 256 * 2**20

# JSON values of one answer.
_MOST_VALUES = 8_000_000

_LAUNCHES = "/v1/launches"

# Time to predict all pairs of many jobs, s; of a placement on top of the search.
_PREDICTING_S = 30.0

# Entries of one answer.
_MOST = 1000

# Records in one request, so that its body stays below 1 MiB.
_AT_ONCE = 500


class ClientError(AdvisorError, code="client"):
    """The service could not be asked, or gave no answer that can be used."""


class UnreachableError(ClientError, code="unreachable"):
    """There is no service at this address, or the connection to it broke."""


class TooSlowError(ClientError, code="too-slow"):
    """There was no answer in time. What was asked for may have been done all the same."""


class AnswerError(ClientError, code="bad-answer"):
    """An answer that is none of this service, or of another version of it."""


class ApiError(ClientError):
    """The service refused, or failed.

    Attributes:
        message: What the service said.
        request_id: Finds the request in the service's log; empty: the service gave none.
        retry_after_s: When it may be asked again, where it said so.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int,
        request_id: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        self._code, self.message, self.status = code, message, status
        self.request_id, self.retry_after_s = request_id, retry_after_s
        super().__init__(message, why=f"{code}, HTTP {status}, request {request_id or 'unknown'}")

    @property
    def code(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Stable name of what went wrong, by the service: docs/api.md has all of them."""
        return self._code  # elsewhere a class has one code; the service has one for each error


# Errors of the library with ours: class, what, why (empty: as the library says) and fix.
_BROKEN: tuple[tuple[type[httpx.RequestError], type[ClientError], str, str, str], ...] = (
    (
        httpx.TimeoutException,
        TooSlowError,
        "no answer in time from {}",
        "the service is busy or hangs, or something on the way drops what is sent",
        "ask again, with a larger timeout_s where much is asked for",
    ),
    (
        httpx.DecodingError,
        AnswerError,
        "the answer of {} cannot be read",
        "",
        "check the address: something else listens there, or a proxy in between answers",
    ),
    (
        httpx.RequestError,
        UnreachableError,
        "cannot reach {}",
        "",
        "check the address, and that `advisor serve` runs there",
    ),
)


class Client:
    """A service, spoken to one request after the other; several threads may share it.

    Args:
        url: Such as `http://127.0.0.1:8765`; of a Unix socket `unix:/run/advisor.sock`.
        token: As `advisor tokens create` printed it; None: what may be done without.
        timeout_s: For each answer. What takes the service longer by nature gets that on top.
        verify: Whose certificate is trusted: True, those that the system trusts; a file, those in
            it; False, anyone's, so that anyone on the way can read the token.

    Raises:
        InputError: one of these cannot be used.

    Every method raises a `ClientError`: `ApiError` where the service refuses or fails,
    `UnreachableError`, `TooSlowError` or `AnswerError` where it gives no answer that can be used.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout_s: float = 30.0,
        verify: Verify = True,
    ) -> None:
        if not timeout_s > 0:
            raise InputError(f"timeout_s is {timeout_s:g}", fix="give seconds above 0")
        self._timeout_s = timeout_s
        path = url.removeprefix(_UNIX) if url.startswith(_UNIX) else None
        self._http = httpx.Client(
            base_url="http://localhost" if path else _checked_url(url),
            headers={"User-Agent": f"advisor/{advisor.__version__}", **_authorization(token)},
            timeout=timeout_s,
            verify=_trust(verify),
            transport=httpx.HTTPTransport(uds=path) if path else None,
            # A proxy of the environment would read the token on its way to a service inside.
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def recommend(self, request: RecommendationRequest) -> Recommendation:
        """How one to seven jobs are to run: together on one GPU, or on separate ones."""
        return self._post("/v1/recommendations", request, Recommendation)

    def recommend_batch(self, requests: Sequence[RecommendationRequest]) -> tuple[BatchItem, ...]:
        """Many recommendations at once, in order; an error that one of them has is in its place."""
        body = BatchRequest(requests=tuple(map(to_plain, requests)))
        return self._post("/v1/recommendations/batch", body, BatchAnswer).answers

    def gains(self, request: GainsRequest) -> Gains:
        """What each job of a GPU model gains beside each other one, or beside one of them."""
        return self._post("/v1/gains", request, Gains, _PREDICTING_S)

    def place(self, request: PlacementRequest) -> Placement:
        """Which jobs share a GPU: a queue of work to its end, or jobs that run from now on."""
        return self._post(
            "/v1/placements", request, Placement, request.time_limit_s + _PREDICTING_S
        )

    def input_power(self, inputs: Sequence[InputQuery]) -> InputPredictions:
        """What matrix products are expected to draw by their data, in order.

        Operands as text are filled by the service, which takes seconds where they are large.
        """
        body = InputPowerRequest(inputs=tuple(inputs))
        # 10 s to fill the largest matrices and count their bits.
        return self._post("/v1/power/input", body, InputPredictions, 10.0 * len(inputs))

    def models(self) -> ModelList:
        """The models of the service, and when which of them became the champion."""
        return self._get("/v1/models", ModelList)

    def model(self, version: str) -> ModelDetails:
        """All that is known of one model; `bundled` came with advisor."""
        return self._get(_path("models", version), ModelDetails)

    def evaluation(self, version: str) -> dict[str, Any]:
        """What `advisor evaluate` found of a model that carries it."""
        return self._get(_path("models", version, "evaluation"), dict[str, Any])

    def promote(self, version: str) -> Champion:
        """Make a model the champion: the next answer is made with it."""
        return self._change(_path("models", version, "promote"))

    def rollback(self) -> Champion:
        """Go back to the champion that the last promotion replaced."""
        return self._change("/v1/models/rollback")

    def audit(self, *, limit: int = 100, before: int | None = None) -> tuple[AuditEntry, ...]:
        """Changes and launches with their users, the newest first.

        Args:
            limit: At most this many, up to 1000.
            before: Only entries with a lower number.
        """
        return self._get("/v1/audit", AuditLog, limit=limit, before=before).entries

    def healthy(self) -> bool:
        """Whether the service lives: now, so it is asked once."""
        return self._says_ok("/healthz")

    def ready(self) -> bool:
        """Whether it can answer: its database and its model, too. It is asked once."""
        return self._says_ok("/readyz")

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
        return self._get(_path("profiles", job), ProfilePoints, gpu_model=gpu_model, limit=_MOST)

    def job_components(self, job: str, *, gpu_model: str | None = None) -> ComponentsOfJob:
        """What the power of a job alone goes to, at each share at which it was measured."""
        return self._get(_path("profiles", job, "components"), ComponentsOfJob, gpu_model=gpu_model)

    def put_profile(self, job: str, points: Iterable[SoloPoint]) -> int:
        """Replace the stored points of a job on their GPU model; gives how many are stored now."""
        return self._request(
            "PUT", _path("profiles", job), Stored, body={"points": _rows(points)}
        ).stored

    def delete_profile(self, job: str, *, gpu_model: str | None = None) -> int:
        """Forget the stored points of a job, of one GPU model or of all; gives how many those were.

        A bundled profile stays, and is used from then on.
        """
        # Not repeated: what the first request did, the second would report as an error.
        path, query = _path("profiles", job), {"gpu_model": gpu_model}
        return self._request("DELETE", path, Deleted, query=query, repeatable=False).deleted

    def import_points(self, points: Iterable[Point]) -> TakenIn:
        """Bring in solo and pair points; those that are there already are left as they are.

        Many go in several requests. After an error the same points can be brought in again.
        """
        return self._take_in("/v1/points", "points", _rows(points))

    def pair_points(self, *jobs: str, gpu_model: str | None = None) -> PairPoints:
        """What was measured of two to seven jobs together: the newest thousand of either source."""
        of = ("pairs", *jobs) if len(jobs) == ADVISED_JOBS else ("sets", "+".join(jobs))
        return self._get(_path(*of, "points"), PairPoints, gpu_model=gpu_model, limit=_MOST)

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
        return self._get(
            "/v1/observations",
            Observations,
            job=job,
            gpu_model=gpu_model,
            limit=limit,
            before=before,
        ).observations

    def sensors(self, *, gpu_model: str | None = None) -> tuple[SensorRecord, ...]:
        """How cards read their power, newest first: of the service's host, and bundled."""
        return tuple(
            record
            for page in self._pages("/v1/power/sensors", gpu_model, SensorRecords)
            for record in page.sensors
        )

    def kernels(self, *, gpu_model: str | None = None) -> tuple[KernelReport, ...]:
        """What measured kernels draw, the newest first: of the service's host, and bundled."""
        return tuple(
            report
            for page in self._pages("/v1/power/kernels", gpu_model, KernelReports)
            for report in page.kernels
        )

    def launch(self, request: LaunchRequest, *, idempotency_key: str | None = None) -> LaunchStatus:
        """Start two jobs that are registered with the service on one of its GPUs.

        Args:
            request: What is to run, and how.
            idempotency_key: A second call with the same key finds the launch of the first, so a
                program that was killed after it asked can ask again. None: a new one, so that what
                goes wrong on the way never starts the jobs twice.
        """
        headers = {"Idempotency-Key": idempotency_key or secrets.token_urlsafe(24)}
        return self._request("POST", _LAUNCHES, LaunchStatus, body=request, headers=headers)

    def plan_launch(self, request: LaunchRequest) -> LaunchSpec:
        """What `launch` would start, without commands of jobs; nothing is started."""
        return self._post(_LAUNCHES, replace(request, dry_run=True), LaunchSpec)

    def launches(
        self, *, active: bool = False, limit: int = 100, before: str | None = None
    ) -> tuple[LaunchStatus, ...]:
        """Launches of all hosts of the service's database, the newest first.

        Args:
            active: Only those that are not over.
            limit: At most this many, up to 1000.
            before: Only those before the launch of this id.
        """
        return self._get(
            _LAUNCHES, LaunchList, active="true" if active else None, limit=limit, before=before
        ).launches

    def launch_status(self, launch: LaunchStatus | str) -> LaunchStatus:
        """How a launch, or the launch of this id, stands now."""
        return self._get(_of(launch), LaunchStatus)

    def launch_history(self, launch: LaunchStatus | str) -> History | None:
        """What it did over its time; None: it has just begun, or runs on another host."""
        return self._get(_of(launch, "history"), LaunchStatus).history

    def overview(self) -> Overview:
        """GPUs, their jobs, launches with their history, and observed savings."""
        return self._get("/v1/overview", Overview)

    def stop_launch(self, launch: LaunchStatus | str, job: str | None = None) -> LaunchStatus:
        """Ask for a launch to be stopped, in the order that is safe; `wait` says when it is.

        With `job` only that job, all copies of it, while the others go on.
        """
        of_job = () if job is None else ("jobs", job)
        return self._request("DELETE", _of(launch, *of_job), LaunchStatus)

    def resplit_launch(self, launch: LaunchStatus | str) -> LaunchStatus:
        """Ask for its jobs to start again at the split that its `resplit` offers."""
        return self._request("POST", _of(launch, "resplit"), LaunchStatus, repeatable=False)

    def join_launch(
        self,
        launch: LaunchStatus | str,
        request: LaunchRequest,
        *,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
        every_s: float = _LOOK_EVERY_S,
    ) -> JobStatus:
        """Let one more job run beside those of a launch that runs, and give what came of it.

        Args:
            launch: Or its id.
            request: The one job, and its `share_percent` where that is not to be advised.
            idempotency_key: As of `launch`.
            timeout_s: Then there is a TooSlowError, and it may join all the same; None: no end.
            every_s: Time between two looks.
        """
        headers = {"Idempotency-Key": idempotency_key or secrets.token_urlsafe(24)}
        said = self._request("POST", _of(launch, "joins"), JobStatus, body=request, headers=headers)
        ends = _after(timeout_s)
        join_id = said.join_id or ""
        while said.outcome == "waiting":
            if time.monotonic() >= ends:
                raise TooSlowError(
                    f"{said.job} has not joined after {timeout_s:g} s",
                    fix=f"look again: launch_join(launch, {join_id!r})",
                )
            time.sleep(every_s)
            said = self.launch_join(launch, join_id)
        return said

    def launch_join(self, launch: LaunchStatus | str, join_id: str) -> JobStatus:
        """How a job does that was to join a launch, by the `join_id` of its answer."""
        return self._get(_of(launch, "joins", join_id), JobStatus)

    def wait(
        self,
        launch: LaunchStatus | str,
        *,
        timeout_s: float | None = None,
        every_s: float = _LOOK_EVERY_S,
    ) -> LaunchStatus:
        """Look at a launch until it is over, well or not, and give how it ended.

        Args:
            launch: Or its id.
            timeout_s: Then there is a TooSlowError, and the launch goes on; None: no end.
            every_s: Time between two looks.
        """
        ends = _after(timeout_s)
        while True:
            status = self.launch_status(launch)
            if status.over:
                return status
            if (left_s := ends - time.monotonic()) <= 0:
                raise TooSlowError(
                    f"the launch {status.launch_id} is {status.state} after {timeout_s:g} s",
                    fix="wait longer; stop_launch ends it",
                )
            time.sleep(min(every_s, left_s))

    def _get(self, path: str, kind: type[T], **query: str | int | None) -> T:
        return self._request("GET", path, kind, query=query)

    def _post(self, path: str, body: Any, kind: type[T], patience_s: float = 0.0) -> T:
        return self._request("POST", path, kind, body=body, patience_s=patience_s)

    def _change(self, path: str) -> Champion:
        # Not repeated: each one is a change of its own, and two rollbacks go back twice.
        return self._request("POST", path, Champion, repeatable=False)

    def _says_ok(self, path: str) -> bool:
        try:
            self._answered("GET", path, repeatable=False)
        except (UnreachableError, TooSlowError):
            return False
        except ApiError as error:
            if error.status != 503:
                raise
            return False
        return True

    def _pages(self, path: str, gpu_model: str | None, kind: type[Paged]) -> list[Paged]:
        pages, cursor = list[Paged](), None
        while True:
            pages.append(self._get(path, kind, gpu_model=gpu_model, cursor=cursor))
            if (cursor := pages[-1].next) is None:
                return pages

    def _take_in(self, path: str, name: str, rows: list[dict[str, Any]]) -> TakenIn:
        taken = TakenIn(read=0, new=0)
        for start in range(0, len(rows), _AT_ONCE):
            taken += self._post(path, {name: rows[start : start + _AT_ONCE]}, TakenIn)
        return taken

    def _request(self, method: str, path: str, kind: type[T], **more: Any) -> T:
        """Read the answer of `_answered`; of a newer service unknown keys are left out."""
        response = self._answered(method, path, **more)
        try:
            return read(kind, response.content, name="the whole", tolerant=True)
        except InputError as error:
            raise AnswerError(
                f"the answer to {method} {path} is not what it should be: {error.what}",
                why="the service is of another version, or something else listens there",
                fix="use the same version of advisor on both sides, and check the address",
            ) from error

    def _answered(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int | None] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        repeatable: bool = True,
        patience_s: float = 0.0,
    ) -> httpx.Response:
        """Send a request, again where that helps and does no harm, until it succeeds.

        The body is sent as JSON. `repeatable`: sending it twice does no more than sending it once;
        `patience_s`: how much longer than usual the answer may take, s.
        """
        timeout_s = self._timeout_s + patience_s
        request = self._http.build_request(
            method,
            path,
            params={name: value for name, value in (query or {}).items() if value is not None},
            content=None if body is None else write(body),
            headers={
                **(headers or {}),
                **({} if body is None else {"Content-Type": "application/json"}),
            },
            timeout=timeout_s,
        )
        repeat = 0
        while True:
            result = self._sent(request, timeout_s)
            if isinstance(result, httpx.Response) and result.is_success:
                return result
            # A request is sent again three times at most.
            pause_s = None if repeat == 3 or not repeatable else _pause_s(result, repeat)
            if pause_s is None:
                raise _error(result)
            time.sleep(pause_s)
            repeat += 1

    def _sent(
        self, request: httpx.Request, timeout_s: float
    ) -> httpx.Response | httpx.RequestError:
        """The answer with its body; time limits of httpx are for each read of the socket."""
        ends_s, body = time.monotonic() + timeout_s, bytearray()
        try:
            response = self._http.send(request, stream=True)
            with closing(response):
                for part in response.iter_bytes():
                    body += part
                    if time.monotonic() > ends_s:
                        raise httpx.ReadTimeout("", request=request)
                    if len(body) > _LARGEST_BYTES:
                        raise httpx.DecodingError(
                            f"more than {_LARGEST_BYTES} bytes", request=request
                        )
                if values_in(body) > _MOST_VALUES:
                    raise httpx.DecodingError(f"more than {_MOST_VALUES} values", request=request)
        except httpx.RequestError as error:
            return error
        return httpx.Response(
            response.status_code,
            headers={name: v for name, v in response.headers.items() if name == "retry-after"},
            content=bytes(body),
        )


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        plain = not (parts.username or parts.password or parts.query or parts.fragment)
    except ValueError:
        good = plain = False
    if not (good and plain):
        # Not repeated: people write passwords into addresses.
        raise InputError(
            "the address of the service is not valid",
            fix="give one like http://127.0.0.1:8765; a token goes into `token`",
        )
    return url.rstrip("/")


def _authorization(token: str | None) -> dict[str, str]:
    if token is None:
        return {}
    # Checked here, since an error of the library below would show what it cannot send.
    if not re.fullmatch(r"[A-Za-z0-9._~+/=-]+", token):
        raise InputError(
            "the token is empty or has characters that no token has",
            why="a line end or a space at its end, often",
            fix="give it as `advisor tokens create` printed it",
        )
    return {"Authorization": f"Bearer {token}"}


def _trust(verify: Verify) -> bool | ssl.SSLContext:
    if isinstance(verify, ssl.SSLContext) or verify is False:
        return verify
    with InputError.instead_of(
        OSError,
        f"{verify} cannot be read as certificates",
        fix="give a PEM file with the certificate that signed the service's",
    ):
        return ssl.create_default_context(cafile=None if verify is True else str(verify))


def _pause_s(result: httpx.Response | httpx.RequestError, repeat: int) -> float | None:
    """How long to wait before asking again; None: it would not help."""
    if isinstance(result, httpx.Response):
        after_s = _retry_after_s(result) if result.status_code in (429, 503) else None
        # A service that wants to be asked later than in 10 s has its error passed on.
        return after_s if after_s is not None and after_s <= 10 else None
    # Anyone who set a time limit does not want to wait for several of them.
    if isinstance(result, (httpx.TimeoutException, httpx.DecodingError)):
        return None
    # 0.2 s before a connection is tried again, each time twice as long, so 1.4 s in all.
    return 0.2 * 2**repeat


def _error(result: httpx.Response | httpx.RequestError) -> ClientError:
    """The error of ours for a failed exchange. Names the host, never what was sent."""
    if isinstance(result, httpx.Response):
        return _refused(result)
    url, said = result.request.url, str(result) or type(result).__name__
    _, kind, what, why, fix = next(row for row in _BROKEN if isinstance(result, row[0]))
    if "CERTIFICATE_VERIFY_FAILED" in said:
        fix = "give the certificate that signed the service's: verify='ca.pem'"
    error = kind(what.format(f"{url.scheme}://{url.netloc.decode()}"), why=why or said, fix=fix)
    error.__cause__ = result
    return error


def _refused(response: httpx.Response) -> ClientError:
    """The error that an answer without success stands for."""
    body: Any = None
    with suppress(ValueError, RecursionError):
        body = response.json()
    match body:
        case {"error": {"code": str(code), "message": str(message)} as error}:
            return ApiError(
                code,
                message,
                status=response.status_code,
                request_id=str(cast("Mapping[str, Any]", error).get("request_id") or ""),
                retry_after_s=_retry_after_s(response),
            )
        case _:
            return AnswerError(
                f"the answer has HTTP status {response.status_code} and no error code of advisor",
                why="something else listens there, or a proxy in between answers",
                fix="check the address",
            )


def _retry_after_s(response: httpx.Response) -> float | None:
    """After how many seconds the service wants to be asked again; None: it did not say."""
    text = response.headers.get("Retry-After", "")
    # The other form is a date, which proxies send. ASCII: isdecimal takes other digits too.
    return float(text) if text.isascii() and text.isdecimal() else None


def _after(timeout_s: float | None) -> float:
    """When time is over, by the clock that goes on."""
    return time.monotonic() + (math.inf if timeout_s is None else timeout_s)


def _of(launch: LaunchStatus | str, *more: str) -> str:
    return _path("launches", launch if isinstance(launch, str) else launch.launch_id, *more)


def _path(*parts: str) -> str:
    """A route; whether the names in it are good ones the service says."""
    return "/".join(("/v1", *(quote(part, safe="") for part in parts)))


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
