"""Which jobs compute in bursts."""

from dataclasses import replace

import pytest

from advisor.core.records import SoloPoint
from advisor.predict.bursts import computes_in_bursts
from advisor_data.bundled import bundled_set_references


@pytest.fixture(scope="module")
def whole() -> list[SoloPoint]:
    """Bundled windows of jobs that have the whole GPU."""
    return [point for point in bundled_set_references() if point.share_percent == 100]


def test_notebooks_and_what_waits_for_input_do(whole: list[SoloPoint]) -> None:
    """By how busy the GPU is, and where that was not read by the noise of the watts."""
    busy = {p.job: computes_in_bursts(p) for p in whole if p.gpu_busy_percent is not None}
    assert {name for name, found in busy.items() if found} == {
        name for name in busy if name.startswith("notebook") or name.endswith("-waiting")
    }
    older = [p for p in whole if p.gpu_busy_percent is None]
    found = [(p.job.startswith("notebook") or p.job.endswith("-waiting")) for p in older]
    said = [computes_in_bursts(p) for p in older]
    wrong = [p.job for p, one, other in zip(older, said, found, strict=True) if one != other]
    assert len(wrong) < 0.05 * len(older), wrong


def test_a_server_or_an_unread_window_does_not(whole: list[SoloPoint]) -> None:
    notebook = next(p for p in whole if p.job == "notebook" and p.gpu_busy_percent)
    assert computes_in_bursts(notebook)
    assert not computes_in_bursts(replace(notebook, offered_rate=10.0))
    unread = replace(notebook, gpu_busy_percent=None)
    assert computes_in_bursts(unread)
    assert not computes_in_bursts(replace(unread, power_stderr_w=None))
