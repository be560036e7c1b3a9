"""The GPUs of a host, and what those draw that nobody holds."""

from collections.abc import Collection

import pytest

from advisor.core.gpu import Gpu
from advisor.core.telemetry import POWER_GPU, Readings
from advisor.errors import SourceError
from advisor.settings import Settings, read_settings
from advisor_api.launches import cards
from advisor_api.launches.cards import HostCards

GPUS = [Gpu(uuid="GPU-1", model="H200"), Gpu(uuid="GPU-2", model="H200")]


class Source:
    """Telemetry that fails as often as it is told to."""

    def __init__(self, fails: int = 0) -> None:
        self.fails, self.is_closed = fails, False

    def read(self, names: Collection[str]) -> Readings:
        self.fails -= 1
        if self.fails >= 0:
            raise SourceError("the driver was unloaded")
        return {POWER_GPU: 80.0}

    def close(self) -> None:
        self.is_closed = True


def settings() -> Settings:
    return read_settings({"ADVISOR_HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent"})


def test_free_ones_are_read_and_a_source_that_fails_is_opened_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a card that is held others read the power; a driver that was loaded again is found."""
    opened = [Source(fails=1), Source()]
    left = [*opened]
    monkeypatch.setattr(cards, "list_gpus", lambda: GPUS)

    def open_source(*_: object) -> Source:
        return left.pop(0)

    monkeypatch.setattr(cards, "open_source", open_source)
    found = HostCards(settings())
    assert found.look({"GPU-2"}) == [(GPUS[0], None), (GPUS[1], None)]
    assert opened[0].is_closed
    assert found.look({"GPU-2"}) == [(GPUS[0], 80.0), (GPUS[1], None)]
    found.close()
    assert opened[1].is_closed


def test_without_a_driver_there_are_none_and_nobody_asks_all_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def no_driver() -> list[Gpu]:
        asked.append(1)
        raise SourceError("no driver answers")

    monkeypatch.setattr(cards, "list_gpus", no_driver)
    found = HostCards(settings())
    assert found.look(()) == found.look(()) == []
    assert len(asked) == 1
