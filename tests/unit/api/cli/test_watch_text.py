"""What `advisor watch` says of a look."""

from advisor_cli.measure.watch import _rate_text  # pyright: ignore[reportPrivateUsage]
from advisor_profiling.attached import GpuSeen, WatchedNow


def gpu(*others: int) -> GpuSeen:
    return GpuSeen(
        index=0,
        model="NVIDIA H100 80GB HBM3",
        power_w=300.0,
        power_limit_w=700.0,
        sm_active_percent=50.0,
        memory_mib=1.0,
        others=others,
    )


def look(*gpus: GpuSeen) -> str:
    return _rate_text(
        WatchedNow(
            pid=1, at="", watched_s=1.0, count=1.0, unit="steps", rate=10.0, fault=None, gpus=gpus
        )
    )


def test_joules_are_told_only_of_all_gpus_of_a_job() -> None:
    assert "60 J each" in look(gpu(), gpu())
    assert "J each" not in look(gpu(), gpu(77))
