"""Which profiles are missing where jobs were profiled on different GPU models."""

import pytest
from small_model import make_profile

from advisor.errors import InputError
from advisor_advice.site.known_profiles import ProfilesOfJob, on_one_gpu


def known(**models: str) -> dict[str, ProfilesOfJob]:
    """Jobs by name, each with profiles on GPU models, such as `a="H100 H200"`."""
    return {
        job: ProfilesOfJob({m: make_profile(job, 1, gpu_model=m) for m in names.split()})
        for job, names in models.items()
    }


def test_the_common_gpu_model_is_taken() -> None:
    """Without a wish, the one that all have."""
    found = on_one_gpu("ab", known(a="H100 H200", b="H100"))
    assert [profile.gpu_model for profile in found.profiles] == ["H100", "H100"]


@pytest.mark.parametrize(
    ("models", "wanted", "message"),
    [
        ({"a": "H200", "b": "H100"}, "H100", "no profile on H100: a. profiled were a on H200"),
        (
            {"a": "H200", "b": "H200"},
            "H100",
            "no profile on H100: a, b. profiled were a on H200; b",
        ),
        (
            {"a": "H200", "b": "H100 A100"},
            None,
            "no profile on H200: b. profiled were b on H100",
        ),
        ({"a": "H100 A100", "b": "H200"}, None, "no profile on H100: b. profiled"),
    ],
)
def test_the_missing_profile_is_named(
    models: dict[str, str], wanted: str | None, message: str
) -> None:
    """Rates of another GPU are no guess; what to measure, and where, is said."""
    with pytest.raises(InputError) as raised:
        on_one_gpu("ab", known(**models), wanted)
    text = str(raised.value)
    assert message in text
    assert f"on that GPU: advisor profile {message.split(': ')[1][0]}" in text
    assert "rates and power of a job differ between GPU models" in text


def test_the_gpu_model_that_most_jobs_have_is_asked_for() -> None:
    """One profile is missing, not two."""
    with pytest.raises(InputError, match="no profile on H200: c"):
        on_one_gpu("abc", known(a="H200", b="H200", c="H100"))


def test_few_of_many_jobs_are_named() -> None:
    """A placement can have hundreds."""
    jobs = {f"job{n}": "H200" for n in range(9)}
    with pytest.raises(InputError, match="no profile on H100: job0, job1, job2 and 6 more"):
        on_one_gpu(list(jobs), known(**jobs), "H100")
