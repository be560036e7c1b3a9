"""Brings what launched pairs did from their folders into the store, and counts it."""

from datetime import datetime

from opentelemetry import trace

from advisor.core.observations import Observation, energy_to_end_j
from advisor.errors import InputError
from advisor.formats.rows import from_row, json_row
from advisor.launch.records.folder import LaunchFolder
from advisor.launch.records.observed import observation_lines
from advisor_api.http.errors import LOG
from advisor_api.launches.launch_metrics import LaunchMetrics
from advisor_data import Store

_TRACER = trace.get_tracer("advisor")


class ObservationImporter:
    """Those of all launches of this host; the same one may be brought in any number of times."""

    def __init__(self, store: Store, launch_metrics: LaunchMetrics) -> None:
        self._store, self._launch_metrics = store, launch_metrics
        self._counted = dict[str, int]()
        self._stored = dict[str, int]()

    def bring_in(self, folder: LaunchFolder) -> None:
        """Bring in the observations of a launch that are new.

        Raises:
            OSError, UnsafeFileError: they cannot be read.
            StoreError: they cannot be stored now.
        """
        launch_id = folder.launch_id
        lines = observation_lines(folder)
        for line in lines[self._counted.get(launch_id, 0) :]:
            if seen := _observation(line, launch_id):
                self._launch_metrics.score(seen, folder.read_spec())
            self._counted[launch_id] = self._counted.get(launch_id, 0) + 1
        for line in lines[self._stored.get(launch_id, 0) :]:
            if seen := _observation(line, launch_id):
                self._keep(seen)
            self._stored[launch_id] = self._stored.get(launch_id, 0) + 1

    def forget(self, launch_id: str) -> None:
        """No more will come of this launch."""
        self._counted.pop(launch_id, None)
        self._stored.pop(launch_id, None)

    def _keep(self, seen: Observation) -> None:
        try:
            if self._store.add([seen]):
                self._launch_metrics.count_energy(seen)
                _trace(seen)
        except InputError as error:
            LOG.error("an observation of the launch %s is no good: %s", seen.launch_id, error)


def _trace(seen: Observation) -> None:
    """A span for what ran, from its start to its end; without `--otel` it goes nowhere."""
    begun_ns = int(datetime.fromisoformat(seen.started_at).timestamp() * 1e9)
    told = {
        "advisor.launch_id": seen.launch_id,
        "advisor.jobs": seen.jobs,
        "advisor.shares_percent": tuple(part.share_percent for part in seen.parts),
        "advisor.state": seen.state,
        "hw.id": seen.gpu_uuid,
        "hw.model": seen.gpu_model,
        "advisor.power_watts": seen.power_w,
        "advisor.energy_joules": energy_to_end_j(seen),
        "advisor.energy_saved_ratio": seen.energy_saved_to_end,
    }
    known = {name: value for name, value in told.items() if value is not None}
    span = _TRACER.start_span("launch", attributes=known, start_time=begun_ns)
    span.end(begun_ns + int((seen.overlap_s + (seen.rest_s or 0.0)) * 1e9))


def _observation(line: bytes, launch_id: str) -> Observation | None:
    try:
        return from_row(Observation, json_row(line))
    except InputError as error:
        LOG.error("an observation of the launch %s cannot be read: %s", launch_id, error)
        return None
