"""The power of an idle GPU for profiles that lack it."""

from advised import profile, profiles

from advisor_advice.idle_power import with_idle_power

NAN = float("nan")


def test_whole_profiles_stay_as_they_are() -> None:
    found = profiles()
    assert with_idle_power(found, {"idle_power_w": 1.0}) == (found, ())


def test_the_median_of_the_others_stands_in() -> None:
    """Before what the model has seen; each job is named once."""
    known = [profile(job, idle_power_w=w) for job, w in zip("abc", (70.0, 80.0, 99.0), strict=True)]
    lacking = profile("d", idle_power_w=NAN)
    found, (said,) = with_idle_power(profiles(*known, lacking, lacking), {"idle_power_w": 1.0})
    assert [p.idle_power_w for p in found.profiles] == [70.0, 80.0, 99.0, 80.0, 80.0]
    assert said == ("idle_power_w is missing in the profile of d: 80 W, as in the other profiles")


def test_where_nobody_knows_nothing_is_made_up() -> None:
    found = profiles(profile("a", idle_power_w=NAN), profile("b", idle_power_w=NAN))
    assert with_idle_power(found, {}) == (found, ())
