"""Groups of pairs by what their jobs use of the GPU."""

from simple_pairs import nine, solo

from advisor_training.dataset.pairs import make_pairs
from advisor_training.dataset.solo import job_classes
from advisor_training.evaluation.bars import group_of

JOBS = {"hh": (90, 80), "hl": (90, 20), "lh": (20, 80), "ll": (5, 1)}
SOLOS = [
    solo(name, sm_active_percent=compute, dram_active_percent=memory)
    for name, (compute, memory) in JOBS.items()
]


def test_the_heavier_job_stands_first() -> None:
    for job_1, job_2, group in (("ll", "hl", ("HL", "LL")), ("hh", "lh", ("HH", "LH"))):
        pairs, left_out = make_pairs(nine(job_1=job_1, job_2=job_2), SOLOS)
        assert left_out == []
        assert group_of(pairs[0], job_classes(SOLOS)) == group


def test_a_pair_without_classes_is_in_no_group() -> None:
    solos = [solo("bare"), *SOLOS]
    pairs, _ = make_pairs(nine(job_1="bare", job_2="hh"), solos)
    assert group_of(pairs[0], job_classes(solos)) is None
