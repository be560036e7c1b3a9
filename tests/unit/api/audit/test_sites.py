"""Sites as they are: other counters on other nodes, other labels, cards that are shared already."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from known_sites import BEGIN_S, SITES, STEP_S, Rows, audited, known_site, profiles

from advisor.core.objectives import Interval
from advisor_audit.page import headline

PLAIN = {
    "DCGM_FI_DEV_POWER_USAGE": 180,
    "DCGM_FI_DEV_FB_USED": 6000,
    "DCGM_FI_DEV_FB_FREE": 75000,
}
BY_UTIL = PLAIN | {"DCGM_FI_DEV_GPU_UTIL": 20}
FULL = PLAIN | {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.2, "DCGM_FI_PROF_SM_ACTIVE": 0.12}


def rows(
    gpu: int,
    labels: Mapping[str, str],
    minutes: Iterable[int] = range(60),
    values: Mapping[str, float] = FULL,
) -> Rows:
    """Series of a small job on a GPU, in these minutes."""
    own = {"UUID": f"GPU-{gpu}", "modelName": "NVIDIA H100 80GB HBM3", "Hostname": "node1"}
    times_s = [BEGIN_S + STEP_S * (minute + 1) for minute in minutes]
    return [
        {"metric": {**own, **labels, "__name__": name}, "values": [[t, f"{v}"] for t in times_s]}
        for name, v in values.items()
    ]


def pod(name: str, team: str = "team") -> dict[str, str]:
    return {"namespace": team, "pod": f"{name}-7d9c5b6f4d-x2x7k", "container": "main"}


@pytest.mark.parametrize("values", [FULL, BY_UTIL], ids=["counters", "utilisation"])
def test_every_gpu_is_read_by_the_metrics_that_it_has(
    values: Mapping[str, float], tmp_path: Path
) -> None:
    """Three nodes without counters share as they would alone, beside one that has them or MIG."""
    plain = [rows(n, pod(f"web{n}"), values=BY_UTIL) for n in range(3)]
    found = audited(tmp_path, [*plain, rows(3, pod("train"), values=values)])
    assert found.shared.apart_hours == {}
    assert found.shared.cards.value <= 2
    assert "of 4 GPUs would have been enough" in headline(found)
    known = {job.job: job.fills for job in found.jobs}
    assert (known["web0"], known["train"]) == (None, False if values is FULL else None)


def test_next_to_nothing_is_not_said_of_what_was_not_read(tmp_path: Path) -> None:
    """Three of four GPUs have no power; the fourth has nobody to share with."""
    no_power = {name: value for name, value in FULL.items() if "POWER" not in name}
    dark = [rows(n, pod(f"web{n}"), values=no_power) for n in range(3)]
    found = audited(tmp_path, [*dark, rows(3, pod("train"))])
    assert found.shared.apart_hours == {"too little read": pytest.approx(3, abs=0.2)}
    said = headline(found)
    assert "next to nothing" not in said
    assert "too little read" in said


def test_nor_of_what_fills_its_cards_beside_a_quarter_that_was_not_read(tmp_path: Path) -> None:
    busy = FULL | {"DCGM_FI_DEV_POWER_USAGE": 650, "DCGM_FI_PROF_SM_ACTIVE": 0.97}
    no_power = {name: value for name, value in FULL.items() if "POWER" not in name}
    full = [rows(n, pod(f"train{n}"), values=busy) for n in range(3)]
    read = audited(tmp_path / "read", full)
    assert "next to nothing" in headline(read)
    found = audited(tmp_path / "dark", [*full, rows(3, pod("web"), values=no_power)])
    assert "little of what was read" in headline(found)
    # The hour of the fourth may have been of a card with six others.
    ends = [one.shared.gpu_hours.low - one.shared.gpu_hours.value for one in (read, found)]
    assert 0.3 < ends[0] - ends[1] < 6 / 7


def test_instances_that_name_no_gpu_are_counted(tmp_path: Path) -> None:
    """As slurm-job-exporter names those of MIG: by their own UUID, beside a GPU's number."""
    row = {
        "instance": "n1",
        "gpu": "MIG-1f0b",
        "slurmjobid": "7",
        "__name__": "slurm_job_power_gpu",
    }
    at = [[BEGIN_S + STEP_S * n, "180000"] for n in range(1, 61)]
    whole: Rows = [{"metric": {**row, "gpu": "3"}, "values": at}]
    found = audited(tmp_path, [whole, [{"metric": row, "values": at}]])
    assert found.now.gpus == 1
    assert "1 MIG instances name no GPU: their hours are in no figure" in found.not_seen


def test_a_card_that_was_not_learned_from_is_said_to_be_a_prior(tmp_path: Path) -> None:
    """From how busy it was; its limit is not the one of a data sheet, nor the most that it drew."""
    a100 = {"modelName": "NVIDIA A100-SXM4-40GB"}
    found = audited(
        tmp_path, [rows(n, {**pod(f"web{n}"), **a100}, values=BY_UTIL) for n in range(4)]
    )
    assert {found.shared.basis, *(one.basis for one in (*found.jobs, *found.sets))} == {"prior"}
    assert found.shared.gpu_hours.high > 1.3 * found.shared.gpu_hours.value
    said = "\n".join((headline(found), *found.not_seen))
    assert "(prior, " in said
    assert "of NVIDIA A100-SXM4-40GB was read" in said
    assert "prior from how busy they were, with wide ranges" in said


WORKER = {"namespace": "slurm", "pod": "worker-0", "container": "slurmd"}
EXPORTER = {"namespace": "monitoring", "pod": "gpu-metrics-7k2xp"}
IDLE = PLAIN | {"DCGM_FI_DEV_FB_USED": 0, "DCGM_FI_PROF_SM_ACTIVE": 0}


@pytest.mark.parametrize(
    ("series", "options", "jobs", "held", "free_hours", "cards"),
    [
        # A worker holds nothing between two jobs, and its namespace names no team.
        (
            [
                rows(0, {**WORKER, "hpc_job": "100"}, range(20)),
                rows(0, WORKER, range(20, 40), IDLE),
                rows(0, {**WORKER, "hpc_job": "101"}, range(40, 60)),
                rows(1, {**WORKER, "pod": "worker-1", "hpc_job": "102"}),
            ],
            {},
            {(f"job {n}", "", 1) for n in (100, 101, 102)},
            {"hpc_job": ("batch job", 3)},
            1 / 3,
            1,
        ),
        # Names of older exporters and of OpenTelemetry beside each other: three teams, no pair.
        (
            [
                rows(0, {**EXPORTER, "pod_name": "web-0", "pod_namespace": "a"}),
                rows(1, {"k8s_pod_name": "web-0", "k8s_namespace_name": "b"}),
                rows(2, pod("web", "c")),
            ],
            {},
            {("web", team, 1) for team in "abc"},
            dict.fromkeys(("pod_name", "k8s_pod_name", "pod"), ("pod", 1)),
            0,
            3,
        ),
        # Prometheus names the exporter and its service on every GPU: memory tells who holds one.
        (
            [rows(n, {**EXPORTER, "job": "gpu-metrics"}) for n in range(2)],
            {},
            {(f"GPU-{n} #1", "", 1) for n in range(2)},
            {None: ("memory in use", 2)},
            0,
            1,
        ),
        # A label that is named goes before the others.
        (
            [rows(n, {**pod("runner"), "team": "ml", "run": f"sweep-{n}"}) for n in range(2)],
            {"job_label": "run", "within": "team"},
            {("sweep", "ml", 2)},
            {"run": ("job", 1)},
            0,
            1,
        ),
    ],
    ids=["workers", "pods", "exporter", "named"],
)
def test_a_gpu_is_held_by_whom_the_finest_label_names(
    series: list[Rows],
    options: dict[str, Any],
    jobs: set[tuple[str, str, int]],
    held: dict[str | None, tuple[str, int]],
    free_hours: float,
    cards: float,
    tmp_path: Path,
) -> None:
    found = audited(tmp_path, series, **options)
    assert {(job.job, job.group, job.pods) for job in found.jobs} == jobs
    assert {one.label: (one.taken_for, one.jobs) for one in found.held_by} == held
    assert found.now.free_hours == pytest.approx(free_hours)
    assert (found.shared.cards.value, bool(found.sets)) == (cards, cards < 2)


SHARED = {"shared already": pytest.approx(1, abs=0.1)}


@pytest.mark.parametrize(
    ("on_one", "apart", "said"),
    [
        (
            [rows(0, pod(f"web{n}"), range(n, 60, 2)) for n in range(2)],
            SHARED,
            "1.0 shared already",
        ),
        ([rows(0, pod(f"web{n}")) for n in range(2)], SHARED, "1.0 shared already"),
        # The power of the card is in the row of each instance, and counts once.
        (
            [rows(0, {**pod(f"web{n}"), "GPU_I_ID": f"{n + 7}"}) for n in range(2)],
            {"in MIG or partitions": pytest.approx(1, abs=0.1)},
            "1.0 in MIG or partitions",
        ),
    ],
    ids=["one of two pods", "a row for each pod", "MIG instances"],
)
def test_gpus_that_are_shared_already_are_a_result(
    on_one: list[Rows], apart: dict[str, float], said: str, tmp_path: Path
) -> None:
    found = audited(tmp_path, [*on_one, rows(1, pod("train"))])
    assert found.shared.apart_hours == apart
    assert (found.now.gpu_hours, found.now.kwh) == pytest.approx((2, 2 * 0.18), rel=0.1)
    assert ([job.job for job in found.jobs], found.first_pairs, found.kept) == (["train"], (), 1)
    assert said in headline(found)


@pytest.mark.parametrize("name", SITES)
def test_what_was_held_is_found_of_every_site(name: str, tmp_path: Path) -> None:
    """Hours, cards and energy within 1 %, or within the range of hours without power."""
    site = known_site(name, 1, cards=8)
    found = audited(tmp_path, [site.rows])
    assert found.now.gpu_hours == pytest.approx(sum(site.hours.values()), rel=0.01)
    assert found.now.cards == site.held.max()
    held = found.now.kwh_range
    assert held
    assert held.value == found.now.kwh
    assert held.low * 0.99 <= site.kwh <= held.high * 1.01
    dark = site.hours["dark"] > 0
    assert (held.low < held.high) is dark
    assert any("no power was read" in said for said in found.not_seen) is dark
    apart = {"mig": "in MIG or partitions", "shared": "shared already", "dark": "too little read"}
    assert found.shared.apart_hours == {
        apart[how]: pytest.approx(hours, abs=0.3)
        for how, hours in site.hours.items()
        if how in apart and hours
    }
    assert (found.span.impossible > 0) is (name == "impossible samples")


def is_within(of: Interval | None, value: Interval | None) -> bool:
    return bool(of and value and of.low - 1e-9 <= value.value <= of.high + 1e-9)


@pytest.mark.slow
def test_ranges_hold_what_is_true_in_nine_of_ten(tmp_path: Path) -> None:
    """True is what whole profiles and true times give; no site has nothing to save by mistake."""
    held = list[bool]()
    for number, (name, seed) in enumerate((n, s) for s in (2, 3, 4) for n in SITES):
        site, folder = known_site(name, seed), tmp_path / str(number)
        told = audited(folder, [site.rows])
        true = audited(folder / "true", [site.clean], known=profiles())
        for of, value in (
            (told.shared.cards, true.shared.cards),
            (told.shared.gpu_hours, true.shared.gpu_hours),
            (told.shared.kwh, true.shared.kwh),
        ):
            held.append(is_within(of, value))
        saves = 1 - true.shared.gpu_hours.value / true.now.gpu_hours
        assert saves < 0.05 or "next to nothing" not in headline(told)
    assert sum(held) >= 0.9 * len(held)
