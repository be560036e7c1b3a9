"""Jobs on a made-up card, and a model of it that says what was written down: what advice is of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from flat_records import from_flat
from made_up_profiles import SHARES, Physics, Scripted, profile as profile_on_h200
from small_model import make_manifest
from unsafe_counts import checked_with

from advisor.core.gpu import Split
from advisor.core.job import Job
from advisor.core.records import Observation, SoloPoint
from advisor.launch.spec import LaunchPart, LaunchSet
from advisor.predict.predictions import Predictions, Predictor
from advisor.predict.profiles import Profile
from advisor.settings import Settings, read_settings
from advisor.validity.safe_counts import CheckedCounts
from advisor_advice.conditions import NOTHING, AdvisorInputs, Conditions, ProfileSet
from advisor_data.files import write_points
from advisor_models.registry import Manifest

T = TypeVar("T")

CARD = "Card"
"""A model of GPUs of which nothing is known but what a test says."""

UUID = "GPU-1"


@dataclass(frozen=True)
class Model:
    """A predictor with the papers of a model; `outside` is what it says of far features."""

    by: Predictor = field(default_factory=Physics)
    manifest: Manifest = field(default_factory=lambda: make_manifest({}))
    outside: tuple[str, ...] = ()

    def predict(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> Predictions:
        return self.by.predict(profiles, splits)

    def extrapolation(self, profiles: Sequence[Profile], splits: Sequence[Split]) -> list[str]:
        return list(self.outside)


def model(known: Mapping[Split, tuple[float, float, float]] | None = None, **fields: Any) -> Any:
    """A model that says this of splits, as `Scripted` has it, or what physics says."""
    return Model(by=Physics() if known is None else Scripted(known), **fields)


CHECKED = checked_with(132, (), checked=range(2, 133), gpu_model=CARD)
"""A check that found every count safe."""


def known(
    by: Any,
    found: ProfileSet | None = None,
    checked: CheckedCounts | None = CHECKED,
    conditions: Conditions = NOTHING,
) -> AdvisorInputs:
    """What an answer by a model is made of, of both jobs if no others are given."""
    there = found or profiles()
    return AdvisorInputs(profile_set=there, model=by, checked=checked, conditions=conditions)


def profile(job: str, **fields: Any) -> Profile:
    """A job whose rate is its share and whose power is 100 W and 3 W for each percent."""
    values: dict[str, Any] = {"gpu_model": CARD, "gpu_uuids": frozenset({UUID}), **fields}
    return profile_on_h200(job, **values)


def profiles(*found: Profile, bundled: Sequence[str] = ()) -> ProfileSet:
    """Of two jobs that fill the card, `a` and `b`, or of those that are given."""
    filling = (profile(job, columns={"sm_active_percent": SHARES}) for job in "ab")
    return ProfileSet(found or tuple(filling), tuple(bundled))


def solo_points(job: str, **fields: Any) -> list[SoloPoint]:
    """A point at each share, of which `profile` would be made."""
    values: dict[str, Any] = {
        "gpu_model": CARD, "gpu_uuid": UUID, "units_total": 132, "idle_power_w": 80.0,
        "power_limit_w": 700.0, "memory_used_mib": 1000.5, "window_s": 2.0,
        "started_at": "2026-01-31T12:00:00Z", "run": "r1", **fields,
    }  # fmt: skip
    by_share: list[dict[str, Any]] = [
        {"share_percent": float(s), "rate": s, "power_w": 100.0 + 3 * s, **values} for s in SHARES
    ]
    return [SoloPoint(job=job, **fields) for fields in by_share]


def launch(number: int = 0, **columns: Any) -> Observation:
    """A launch of `a` and `b` at 50/50 for a minute, on another card than the profiles'."""
    return from_flat(
        Observation,
        **{
            "launch_id": f"l{number}", "gpu_model": CARD, "gpu_uuid": "GPU-2", "job_1": "a",
            "job_2": "b", "share_1_percent": 50.0, "share_2_percent": 50.0, "units_1": 66,
            "units_2": 66, "rate_1": 60.0, "rate_2": 80.0, "power_w": 350.0, "overlap_s": 60.0,
            "state": "finished", "started_at": f"2026-01-31T12:00:{number:02d}Z", **columns,
        },
    )  # fmt: skip


def points_file(folder: Path, *points: Sequence[SoloPoint]) -> Path:
    """The points in a file; by default those of `a` and `b`."""
    path = folder / "solo.jsonl"
    write_points(path, [p for of_job in points or map(solo_points, "ab") for p in of_job])
    return path


def settings_of(folder: Path, **variables: str) -> Settings:
    """A host that has nothing yet."""
    return read_settings(
        {"ADVISOR_HOME": str(folder / "home"), "ADVISOR_JOBS": str(folder), **variables}
    )


def launch_set(split: Split, *jobs: Job) -> LaunchSet:
    """The jobs at a split, `a` and `b` by default, with nothing known of them."""
    of = jobs or (Job(name="a", command=("true",)), Job(name="b", command=("true",)))
    return LaunchSet(split=split, parts=tuple(LaunchPart(job=job) for job in of))


def gives(value: T) -> Callable[[object], T]:
    """A function of one argument that always gives this."""
    return lambda _: value
