"""Documents of launches: read as they were written, and refused where they are none."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.core.interval import Interval
from advisor.core.job import Job
from advisor.core.split import NINE, TIME_SLICED, UNCAPPED, Split
from advisor.formats.job_file import load_job
from advisor.launch.folder import dumps, loads
from advisor.launch.spec import Forecast, JobForecast, LaunchPart, LaunchSet, LaunchSpec
from advisor.launch.status import JobStatus, LaunchStatus

RATE, OTHER_RATE, POWER = Interval(100, 90, 110), Interval(50, 45, 55), Interval(400, 380, 420)
FORECAST = Forecast(
    model_version="m1",
    jobs=(
        JobForecast(rate=RATE, solo_rate=200, rest_energy_saved=-0.1),
        JobForecast(rate=OTHER_RATE, solo_rate=100),
    ),
    power_w=POWER,
    work_per_joule=Interval(0.0025, 0.0023, 0.0027),
    coverage=0.9,
)
A, B = (Job(name=name, command=(name,)) for name in "ab")
STATUS = LaunchStatus(
    launch_id="x",
    state="running",
    updated_at="now",
    jobs=(JobStatus(job="a", rate_unit="steps", share_percent=30.0),),
    forecast=FORECAST,
)


@given(st.sampled_from([*NINE, UNCAPPED, TIME_SLICED, Split((20.0, 30.0, 50.0))]))
def test_documents_are_read_as_they_were_written(split: Split) -> None:
    """For any number of jobs."""
    parts = tuple(LaunchPart(job=A) for _ in split.shares)
    spec = LaunchSpec(launch_id="x", gpu="0", pairs=(LaunchSet(split=split, parts=parts),))
    text = dumps(spec)
    (pair,) = json.loads(text)["pairs"]
    assert pair["split"] == {"shares": list(split.shares), "sharing": split.sharing}
    assert [part["job"]["command"] for part in pair["jobs"]] == [["a"]] * len(split.shares)
    assert loads(LaunchSpec, text) == spec


def test_status_is_read_as_it_was_written() -> None:
    """What other versions look for stands where they look for it."""
    text = dumps(STATUS)
    said = json.loads(text)
    assert (said["launch_id"], said["state"], said["sharing"]) == ("x", "running", "limited")
    (job,) = said["jobs"]
    assert (job["job"], job["rate_unit"], job["share_percent"]) == ("a", "steps", 30.0)
    assert said["forecast"]["power_w"] == {"value": 400, "low": 380, "high": 420}
    assert said["forecast"]["jobs"][0]["rest_energy_saved"] == -0.1
    assert loads(LaunchStatus, text) == STATUS


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"pairs": [1]}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_what_is_no_document_is_refused(text: bytes) -> None:
    """With the error that callers handle, whatever the bytes are."""
    for kind in (LaunchSpec, LaunchStatus):
        with pytest.raises(ValueError, match=r"\w"):
            loads(kind, text)


def test_a_job_of_a_spec_has_the_hash_of_its_file(tmp_path: Path) -> None:
    """Numbers come back as floats; what a launch did is found by what was measured of the job."""
    file = tmp_path / "job.yaml"
    for more in ("", "warm_up_s: 2\n", "warm_up_s: 0\n"):
        file.write_text(f"command: [train]\nprogress: {{kind: runs, unit: runs}}\n{more}")
        parts = (LaunchPart(job=load_job(file)), LaunchPart(job=B))
        pair = LaunchSet(split=Split((30, 70)), parts=parts)
        spec = loads(LaunchSpec, dumps(LaunchSpec(launch_id="x", gpu="0", pairs=(pair,))))
        assert [job.job_hash for job in spec.pairs[0].jobs] == [job.job_hash for job in pair.jobs]
