"""Memory of launched jobs is bounded and read back: real processes and a fake driver."""

import pytest
from host import FakeHost
from launched import await_nobody, folder, launch

pytestmark = pytest.mark.slow


def test_memory_is_bounded_and_read_back(jobs: FakeHost) -> None:
    jobs.write_job("small", memory_mib=2000)
    jobs.write_job("unknown", memory_mib=None)
    last = launch(jobs, "one", "small", "unknown", "--split", "100/50/50", "--duration", "2")
    assert [job["memory_limit_mib"] for job in last["jobs"]] == [134_070, 135_970, None]
    shown = jobs.advisor("launches", "show", last["launch_id"]).stdout
    assert "135,970 MiB" in shown
    assert "no limit" in shown
    await_nobody(jobs)


def test_memory_that_is_not_bounded_starts_nobody(jobs: FakeHost) -> None:
    """An old driver takes no limit."""
    jobs.write_job("old", env={"FAKE_CUDA_NO_MEMORY_LIMIT": "1"})
    jobs.write_job("large", memory_mib=80_000)
    last = launch(jobs, "large", "old", "--split", "50/50", code=3)
    assert (last["state"], last["code"]) == ("failed", "limit-not-proven")
    assert "should be bounded at 48582 MiB, and 80000 MiB are free" in last["cause"]
    assert [*folder(jobs, last["launch_id"]).glob("*/progress")] == []
    await_nobody(jobs)
