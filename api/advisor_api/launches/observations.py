"""Brings what launched pairs did from their folders into the store, and counts it."""

from advisor.core.observations import Observation
from advisor.errors import InputError
from advisor.formats.rows import from_row
from advisor.launch.records.folder import LaunchFolder
from advisor.launch.records.observed import observation_lines
from advisor_api.http.errors import LOG
from advisor_api.launches.launch_metrics import LaunchMetrics
from advisor_data import Store
from advisor_data.store.lines import json_row


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
        except InputError as error:
            LOG.error("an observation of the launch %s is no good: %s", seen.launch_id, error)


def _observation(line: bytes, launch_id: str) -> Observation | None:
    try:
        return from_row(Observation, json_row(line))
    except InputError as error:
        LOG.error("an observation of the launch %s cannot be read: %s", launch_id, error)
        return None
