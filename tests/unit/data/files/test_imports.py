"""What is refused of points that are brought in, and what is said of those that are taken."""

from typing import Any

import pytest
from store_points import observation, pair_point, point

from advisor.core.records import Record, SoloPoint
from advisor.errors import InputError, StoreError
from advisor_data.files import check_import, import_notes
from advisor_data.lists import ProfileRow, profile_rows

ALL = {"power_w": 300.0, "idle_power_w": 75.0, "power_limit_w": 700.0, "memory_used_mib": 900.0}


def rows(*units: str, **fields: Any) -> list[ProfileRow]:
    """What is stored of a job, by the units of its rates."""
    return profile_rows(point(9 + n, rate_unit=unit, **fields) for n, unit in enumerate(units))


def profile(**fields: Any) -> list[SoloPoint]:
    shares = enumerate((50.0, 100.0))
    return [point(n, share_percent=share, **{"job": "mine", **fields}) for n, share in shares]


@pytest.mark.parametrize(
    ("points", "stored", "said"),
    [
        ([point(share_percent=0.5)], [], "share_percent of gemm is 0.5, less than 1 %.*write 50"),
        ([point(share_percent=0.999)], [], "write 99.9"),
        ([pair_point(share_1_percent=0.3)], [], r"of gemm in gemm \+ sort is 0.3.*write 30"),
        ([pair_point(share_2_percent=0.7)], [], r"of sort in gemm \+ sort is 0.7"),
        ([observation(share_2_percent=0.7)], [], r"of sort in gemm \+ sort is 0.7"),
        (
            [point(1, rate_unit="images"), point(2)],
            [],
            "rates of gemm on NVIDIA H200 are in images and steps.*delete --job gemm",
        ),
        ([point(1)], rows("images"), "are in images and steps"),
        ([pair_point(1)], rows("images", "passes"), "are in images and passes"),
    ],
)
def test_points_that_would_be_wrong_are_refused(
    points: list[Record], stored: list[ProfileRow], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        check_import(points, stored)


@pytest.mark.parametrize(
    ("points", "stored"),
    [
        ([point(share_percent=1.0)], rows("steps")),
        ([point(share_percent=0.5, mode="cu_mask")], []),
        ([point(1, rate_unit="images"), point(2, job="sort"), point(3, gpu_model="A100")], []),
        ([point(1)], rows("images", gpu_model="A100") + rows("images", job="sort")),
        ([pair_point(1), observation(1)], []),
    ],
)
def test_points_that_may_be_right_are_taken(points: list[Record], stored: list[ProfileRow]) -> None:
    """A CU mask of one unit is less than 1 %; each job and GPU model may have a unit of its own."""
    check_import(points, stored)


@pytest.mark.parametrize(
    ("stored", "notes"),
    [
        (profile(**ALL), []),
        (profile(**{**ALL, "idle_power_w": None}), ["idle_power_w is missing; that of other"]),
        (profile(power_w=300.0), ["idle_power_w is", "power_limit_w is", "memory_used_mib is"]),
        ([*profile(power_w=300.0), *profile(**ALL)], []),
        (profile(**{**ALL, "power_w": None}), ["no profile yet: at 100 % power_w is missing"]),
        (profile(**ALL)[:1], ["no profile yet: there is no point at 100 %"]),
        (profile(job="triad", **ALL), ["used from now on instead of the bundled profile"]),
        (profile(job="triad", gpu_model="Other GPU", **ALL), []),
    ],
)
def test_a_person_is_told_what_the_points_make(stored: list[SoloPoint], notes: list[str]) -> None:
    """Of the job on its model, by all that is stored of it and not of what was brought in alone."""
    told = import_notes([stored[-1], pair_point()], stored)
    of = f"{stored[-1].job} on {stored[-1].gpu_model}: "
    assert len(told) == len(notes)
    assert all(note.startswith(of + begin) for note, begin in zip(told, notes, strict=True))


def test_pairs_say_nothing_and_a_damaged_package_hides_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def damaged(*_: object) -> None:
        raise StoreError("damaged")

    monkeypatch.setattr("advisor_data.files.bundled_solo_points", damaged)
    stored = profile(job="triad", **ALL)
    assert (import_notes(stored, stored), import_notes([pair_point()], stored)) == ([], [])
