"""The overview of this host by the folders of its launches, where no service runs."""

import socket
from datetime import datetime

from advisor.launch.records.answers import Launch, launch_of
from advisor.launch.records.folder import LaunchFolder, list_folders
from advisor.launch.records.history import read_history
from advisor.launch.records.overview import Entry, Overview, Seen, entry_of, overview
from advisor.settings import Settings
from advisor_api.launches.cards import Cards

HOST = socket.gethostname()


class HostLaunches:
    """Each folder of a launch that is over is read once."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._root = settings, settings.home / "launches"
        self._cards = Cards(settings)
        self._ended: dict[str, tuple[Launch, Entry | None]] = {}

    def look(self) -> Overview:
        """All at one look."""
        running: list[Launch] = []
        for folder in list_folders(self._root):
            if folder.launch_id in self._ended:
                continue
            one = launch_of(folder.read_status(), HOST)
            if one.over:
                self._ended[folder.launch_id] = one, entry_of(one)
            else:
                running.append(one)
        ended = [self._ended[name] for name in sorted(self._ended, reverse=True)]
        entries = [*(entry for _, entry in ended), *map(entry_of, running)]
        seen = Seen(
            now=datetime.now().astimezone(),
            running=running,
            ended=[launch for launch, _ in ended],
            entries=[entry for entry in entries if entry is not None],
            cards=self._cards.look({one.gpu_uuid or "" for one in running}),
            host=HOST,
        )
        return overview(
            seen, lambda name: read_history(LaunchFolder(self._root / name)), self._settings.prices
        )

    def close(self) -> None:
        """Let go of the driver."""
        self._cards.close()
