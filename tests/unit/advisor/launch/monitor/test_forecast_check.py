"""What is said of a pair that does other than was predicted, on a clock of its own."""

import pytest
from scripted_jobs import Script, Watch

from advisor.core.interval import Interval
from advisor.core.job import Job, ProgressSettings
from advisor.launch.observe import ForecastCheck
from advisor.launch.spec import Forecast, JobForecast


def forecast(
    rate_a: float = 50.0, rate_b: float = 80.0, power_w: float = 400.0, work: float = 1.3 / 400
) -> Forecast:
    """With bounds a fifth below and above."""

    def around(value: float) -> Interval:
        return Interval(value, 0.8 * value, 1.2 * value)

    return Forecast(
        model_version="v1",
        jobs=tuple(JobForecast(rate=around(rate), solo_rate=100.0) for rate in (rate_a, rate_b)),
        power_w=around(power_w),
        work_per_joule=around(work),
        coverage=0.9,
    )


def watched(monkeypatch: pytest.MonkeyPatch, expected: Forecast | None, *jobs: Job) -> Watch:
    """At 50 and 80 steps per second and 400 W."""
    a, b = Script(rate=50), Script(rate=80)
    return Watch(monkeypatch, a, b, forecast=expected, jobs=jobs)


def said(watch: Watch, seconds: float = 20) -> list[str]:
    """After so long."""
    watch.go_on(seconds)
    return ForecastCheck(watch.pair).warnings(watch.monitor)


def test_what_was_predicted_is_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is a pair of which nothing was."""
    assert said(watched(monkeypatch, forecast())) == []
    assert said(watched(monkeypatch, None)) == []


def test_each_quantity_that_is_far_off_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With both values, and by how much it is off."""
    watch = watched(monkeypatch, forecast(100.0, 40.0, 200.0, 1.3 / 800))
    drift = ForecastCheck(watch.pair)
    watch.go_on(20)
    assert drift.warnings(watch.monitor) == [
        "rate of a is 50 steps/s, -50% against the prediction of 100 (80 to 120)",
        "rate of b is 80 steps/s, +100% against the prediction of 40 (32 to 48)",
        "power is 400 W, +100% against the prediction of 200 (160 to 240)",
        "work per joule is 3.25 per kJ, +100% against the prediction of 1.625 (1.3 to 1.95)",
    ]
    watch.go_on(20)
    assert drift.warnings(watch.monitor) == []


def test_a_quantity_that_drifts_later_is_said_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were said before are not said again."""
    watch = watched(monkeypatch, forecast(100.0))
    drift = ForecastCheck(watch.pair)
    watch.go_on(20)
    assert [text.split(" is ")[0] for text in drift.warnings(watch.monitor)] == ["rate of a"]
    watch.meter.power_w = 900.0
    watch.go_on(100)
    later = [text.split(" is ")[0] for text in drift.warnings(watch.monitor)]
    assert later == ["power", "work per joule"]


def test_means_of_a_short_time_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five seconds after the first three."""
    assert said(watched(monkeypatch, forecast(100.0)), 7.5) == []
    assert len(said(watched(monkeypatch, forecast(100.0)), 8.0)) == 1


def test_two_jobs_of_one_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second is said though the first was, each in the unit of the job."""
    twin = Job(name="a", command=("true",), progress=ProgressSettings(unit="images"))
    watch = watched(monkeypatch, forecast(100.0, 80.0), twin, twin)
    drift = ForecastCheck(watch.pair)
    watch.go_on(20)
    (first,) = drift.warnings(watch.monitor)
    assert first.startswith("rate of a is 50 images/s")
    watch.jobs[1].script.hangs_s = 20.0
    watch.go_on(60)
    later = drift.warnings(watch.monitor)
    assert [text.split(" is ")[0] for text in later] == ["rate of a", "work per joule"]


def test_a_prediction_of_nothing_has_no_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that was to stand still."""
    (text,) = said(watched(monkeypatch, forecast(rate_a=0.0)))
    assert text == "rate of a is 50 steps/s, far from the prediction of 0 (0 to 0)"


def test_what_is_not_known_is_not_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without power there is no work per joule either."""
    watch = watched(monkeypatch, forecast(100.0, 80.0, 200.0))
    watch.meter.power_w = None
    assert [text.split(" is ")[0] for text in said(watch)] == ["rate of a"]
