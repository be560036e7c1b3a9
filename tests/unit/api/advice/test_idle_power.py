"""The power of an idle GPU for profiles that lack it."""

from advised import profile, profiles

from advisor_advice.profiles import with_idle_power

NAN = float("nan")


def test_the_median_of_the_others_stands_in() -> None:
    known = [profile(job, idle_power_w=w) for job, w in zip("abc", (70.0, 80.0, 99.0), strict=True)]
    lacking = profile("d", idle_power_w=NAN)
    found, (said,) = with_idle_power(profiles(*known, lacking, lacking), {"idle_power_w": 1.0})
    assert [p.idle_power_w for p in found.profiles] == [70.0, 80.0, 99.0, 80.0, 80.0]
    assert said == ("idle_power_w is missing in the profile of d: 80 W, as in the other profiles")


def test_where_nobody_knows_nothing_is_made_up() -> None:
    found = profiles(profile("a", idle_power_w=NAN), profile("b", idle_power_w=NAN))
    assert with_idle_power(found, {}) == (found, ())


def test_active_idle_power_is_as_far_above_as_the_model_has_seen() -> None:
    """A measured one stays; asked again, the profiles are the same ones."""
    known = profiles(profile("a", idle_power_w=70.0, active_idle_power_w=130.0), profile("b"))
    found, _ = with_idle_power(known, {"active_idle_above_w": 36.0})
    assert [p.active_idle_power_w - p.idle_power_w for p in found.profiles] == [60.0, 36.0]
    again, _ = with_idle_power(known, {"active_idle_above_w": 36.0})
    assert all(p is q for p, q in zip(found.profiles, again.profiles, strict=True))
