"""Twins are of one family."""

import pytest

from advisor_training.learn.protocols import family_of


@pytest.mark.parametrize(
    ("job", "family"),
    [
        ("bert-train", "bert"),
        ("bert-infer-b2", "bert"),
        ("matmul-fp32", "matmul"),
        ("gemm", "matmul"),
        ("triad", "triad"),
    ],
)
def test_the_family_of_a_job(job: str, family: str) -> None:
    assert family_of(job) == family
