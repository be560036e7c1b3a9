"""Who of a queue shares a GPU, without Slurm: pairs, joins, places, time limits, who is alone."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from advisor_node.advice import Answer, Apart, Question, Together
from advisor_node.slurm.comment import Named
from advisor_node.slurm.matching.cluster import Node, Partition
from advisor_node.slurm.matching.decide import GATHER_S, HOLD_S, START_S, Change, Round
from advisor_node.slurm.matching.queued import QueuedJob

NOW_S, WAIT_S = 100_000.0, 60.0
NODE = Node(name="n1", partitions=("p",), free_cpus=8, has_gpus=True, is_shared=True)
PARTITION = Partition(
    name="p", is_default=True, default_min=None, most_min=None, cpus=None, memory_mib=None,
    one_user=True,
)  # fmt: skip
SHARES = {("a", "b"): ("50", "26"), ("a", "c"): ("50", "50"), ("a", "a"): ("40", "40")}
SAVED = {("a", "b"): 0.2, ("a", "c"): 0.15, ("a", "a"): 0.3}


def waiting(key: str, job: str = "", ago_s: float = 20.0, **more: Any) -> QueuedJob:
    """A job that came some time ago and waits for others."""
    made = QueuedJob(
        key=key, user="u", partition="p", pending=True, comment=f"advisor:job={job or key}",
        named=Named(job=job or key), counted=100, eligible_s=NOW_S - ago_s + WAIT_S,
        priority=1.0, limit_min=None, cpus=1, where="", needs_node="", held=False, cards={},
    )  # fmt: skip
    return replace(made, **more)


def begun(key: str, index: int = 0, counted: int = 66, **more: Any) -> QueuedJob:
    """A job that runs on its part of a GPU."""
    named = Named(job=key, share_text="50", counted=counted)
    runs: dict[str, Any] = {"pending": False, "named": named, "counted": counted}
    runs |= {"eligible_s": NOW_S - 90, "cards": {("n1", index): counted}}
    return waiting(key, **(runs | more))


def ask(questions: Collection[Question]) -> Mapping[Question, Answer]:
    return {question: answer(question) for question in questions}


def answer(question: Question) -> Answer:
    a, b = (asked.job for asked in question.jobs)
    for names, order in (((a, b), 1), ((b, a), -1)):
        if names in SHARES:
            shares = SHARES[names][::order]
            return Together(
                shares=(shares[0], shares[1]), energy_saved=SAVED[names], split="/".join(shares),
                low_speeds=(0.5, 0.8)[::order], needs_mib=(1000.0, 2000.0)[::order],
                gpu_model="NVIDIA H200",
            )  # fmt: skip
    return Apart("exclusive is better")


def decided(*jobs: QueuedJob, **more: Any) -> dict[str, Change]:
    made = Round(
        jobs=jobs, nodes={"n1": NODE}, partitions={"p": PARTITION}, ask=ask, now_s=NOW_S,
        wait_s=WAIT_S,
    )  # fmt: skip
    made = replace(made, **more)
    return {change.job.key: change for change in made.decide()}


def test_the_first_of_a_pair_begins_and_the_other_waits_for_it() -> None:
    change = decided(waiting("a"), waiting("b"))
    assert list(change) == ["a"]
    assert (change["a"].counted, change["a"].starts_in_s, change["a"].node) == (66, 0, None)
    named = change["a"].named
    assert (named.share_text, named.counted, named.memory_mib) == ("50", 66, 134_070)


def test_jobs_that_have_just_come_are_gathered() -> None:
    """The first shall not take the next, where the one after that fits better."""
    assert decided(waiting("a", ago_s=GATHER_S - 1), waiting("b", ago_s=0)) == {}


def test_the_other_is_sent_to_the_node_of_the_first() -> None:
    change = decided(begun("a"), waiting("b"))["b"]
    assert (change.counted, change.node, change.named.share_text) == (34, "n1", "26")
    assert "beside job a (a), split 50/26, at most 135,070 MiB of its memory" in change.why


def test_it_is_not_sent_where_slurm_would_take_another_gpu() -> None:
    """The GPU before has room for it; Slurm takes the first that fits."""
    on_second = begun("a", index=1)
    assert decided(on_second, waiting("b")) == {}
    before = begun("x", index=0, counted=90, named=Named(job="x", share_text="90", counted=90))
    assert decided(on_second, before, waiting("b"))["b"].node == "n1"


@pytest.mark.parametrize(
    "more",
    [{"nodes": {"n1": replace(NODE, free_cpus=0)}}, {"nodes": {}}],
)
def test_it_is_not_sent_where_it_would_not_start(more: dict[str, Any]) -> None:
    assert decided(begun("a"), waiting("b"), **more) == {}


def test_one_at_a_time_is_sent_to_a_node() -> None:
    """Two that are on their way could take each other's places."""
    sent = waiting("x", named=Named(job="x", share_text="26", counted=34), counted=34,
                   needs_node="n1", eligible_s=NOW_S - 1)  # fmt: skip
    assert decided(begun("a"), sent, waiting("b")) == {}


@pytest.mark.parametrize(("memory_mib", "met"), [(134_070, True), (134_071, False), (None, True)])
def test_a_job_joins_where_it_finds_its_memory(memory_mib: int | None, met: bool) -> None:
    """What the first may take was bounded for another partner; it keeps that."""
    named = Named(job="a", share_text="50", counted=66, memory_mib=memory_mib)
    assert ("b" in decided(begun("a", named=named), waiting("b"))) == met


def test_a_card_with_a_third_job_is_full() -> None:
    other = waiting("m", named=None, pending=False, cards={("n1", 0): 10}, eligible_s=NOW_S)
    assert decided(begun("a"), other, waiting("b")) == {}


def test_all_together_save_most() -> None:
    """Not the pair that saves most, where it leaves two alone."""
    jobs = [waiting("1", "a"), waiting("2", "a"), waiting("3", "b"), waiting("4", "c")]
    assert sorted(change.counted for change in decided(*jobs).values()) == [50, 66]


@pytest.mark.parametrize(
    "more",
    [
        {"user": "other"}, {"where": "h200"}, {"partition": "other"}, {"held": True},
        {"counted": 30}, {"named": Named(job="b", beside="x")}, {"eligible_s": NOW_S + 500},
    ],
)  # fmt: skip
def test_some_may_not_meet(more: dict[str, Any]) -> None:
    """Another user, constraint or partition; who waits for something else, or wants another."""
    assert decided(waiting("a"), waiting("b", **more)) == {}


def test_users_meet_where_the_node_serves_several() -> None:
    several = {"p": replace(PARTITION, one_user=False)}
    assert "a" in decided(waiting("a"), waiting("b", user="other"), partitions=several)


def test_a_time_limit_leaves_the_job_its_work() -> None:
    change = decided(waiting("a", limit_min=50), waiting("b", limit_min=60))["a"]
    assert change.limit_min == 100
    assert "time limit 100 min, since it runs at 50 %" in change.why
    assert decided(begun("a"), waiting("b", limit_min=60))["b"].limit_min == 75
    default = {"p": replace(PARTITION, default_min=10)}
    assert decided(waiting("a"), waiting("b"), partitions=default)["a"].limit_min == 20


def test_jobs_whose_limit_does_not_fit_do_not_meet() -> None:
    """Under the longest that the partition allows; so neither is killed for having shared."""
    short = {"p": replace(PARTITION, most_min=70)}
    for limits in ((50, 10), (10, 60)):
        a, b = (waiting(key, limit_min=limit) for key, limit in zip("ab", limits, strict=True))
        assert decided(a, b, partitions=short) == {}


def test_a_job_is_held_for_one_that_waits_for_a_gpu() -> None:
    """With a bound; else it would begin alone while its partner is next in the queue."""
    first = begun("a", pending=True, cards={}, eligible_s=NOW_S - 5)
    change = decided(first, waiting("b", eligible_s=NOW_S + 10))["b"]
    assert (change.counted, change.starts_in_s, change.named.share_text) == (100, 60, None)
    assert decided(first, waiting("b", eligible_s=NOW_S + 50)) == {}
    assert decided(first, waiting("b", eligible_s=NOW_S + WAIT_S - HOLD_S - 1)) == {}


def test_who_is_left_before_it_began_has_a_whole_gpu() -> None:
    first = begun("a", pending=True, cards={}, eligible_s=NOW_S - WAIT_S - 1)
    change = decided(first)["a"]
    assert (change.counted, change.named.share_text, change.named.memory_mib) == (100, "100", None)
    assert decided(replace(first, eligible_s=NOW_S - 5)) == {}


def test_who_cannot_start_where_it_was_sent_has_a_whole_gpu() -> None:
    named = Named(job="b", share_text="26", counted=34)
    sent = waiting("b", named=named, counted=34, needs_node="n1", eligible_s=NOW_S - START_S - 1)
    change = decided(begun("a"), sent)["b"]
    assert (change.counted, change.node, change.named.share_text) == (100, "", "100")


def test_a_job_that_was_changed_is_not_changed_again() -> None:
    """What is decided stands in the job: the next look says the same of nobody."""
    change = decided(waiting("a"), waiting("b"))["a"]
    after = replace(change.job, named=change.named, counted=change.counted, eligible_s=NOW_S)
    assert decided(after, waiting("b")) == {}


def test_pairs_are_parted_for_two_that_would_be_left_alone() -> None:
    """Two berts that could meet each other, beside two gemms that fit nobody else."""
    jobs = [waiting("1", "a"), waiting("2", "a"), waiting("3", "b"), waiting("4", "b")]
    assert set(decided(*jobs)) == {"1", "2"}
