"""Recommendations on an AMD GPU: CU masks, and splits in steps of its CUs."""

from itertools import pairwise

from made_up_profiles import Physics, Scripted, profile

from advisor.core.gpu import PERCENTAGE, units_for_share
from advisor.core.split import NINE, Split
from advisor.decide.recommend import recommend
from advisor.decide.recommendation import Request, environments
from advisor.predict.profiles import Profile

FREE = Request(default_min_speed=0)
PAYS = Scripted({Split((30.0, 70.0)): (0.8, 0.9, 400.0)})


def amd(job: str, units_total: int | None = 304) -> Profile:
    return profile(job, gpu_model="AMD Instinct MI300X", units_total=units_total)


def cus(share_percent: float) -> int:
    return units_for_share(share_percent, 304, "amd")


def test_split_is_two_masks_that_do_not_overlap() -> None:
    """The first job has 96 of 304 CUs, the second all others; no variable of CUDA is named."""
    answer = recommend((amd("fft"), amd("gemm")), PAYS, FREE)
    assert answer.choice.name == "30/70"
    a, b = environments(answer.profiles, answer.choice)
    assert (a["HSA_CU_MASK"], b["HSA_CU_MASK"]) == ("0:0-95", "0:96-303")
    assert int(a["ROC_GLOBAL_CU_MASK"], 16) & int(b["ROC_GLOBAL_CU_MASK"], 16) == 0
    assert PERCENTAGE not in a | b
    (uncapped,) = [option for option in answer.candidates if option.name == "uncapped"]
    assert environments(answer.profiles, uncapped) == ({}, {})


def test_fine_splits_are_in_steps_of_one_cu_per_xcd() -> None:
    fine = Request(default_min_speed=0, fine=True)
    answer = recommend((amd("fft"), amd("gemm")), Physics(), fine)
    splits = [o.prediction.split for o in answer.candidates if o.sharing == "limited"]
    assert set(NINE) <= set(splits)
    counts = [[cus(share) for share in split.shares] for split in splits]
    assert all(sum(pair) == 304 for pair in counts)
    firsts = sorted({first for first, _ in counts})
    assert {b - a for a, b in pairwise(firsts)} == {8}
    assert firsts[0] == 32  # the smallest measured share, 10 %, is a whole row


def test_wrong_counts_of_cus_are_avoided_in_steps_of_cus() -> None:
    """What the job itself reports moves a split to the next count that a mask can have."""
    wrong = profile(
        "fft", gpu_model="AMD Instinct MI300X", units_total=304, wrong_units=frozenset({96})
    )
    answer = recommend((wrong, amd("gemm")), Physics(), FREE)
    splits = [o.prediction.split for o in answer.candidates if o.sharing == "limited"]
    used = {cus(split.shares[0]) for split in splits}
    assert 96 not in used
    assert used & {88, 104}
    text = "not used for fft: 96 of 304 CUs, at which its own results were wrong"
    assert text in answer.reasons
