"""Who of a queue shares a GPU, without Slurm: pairs, joins, places, time limits, who is alone."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from advisor.client import JobRequest
from advisor_node.advice import Answer, Apart, NamedSets, Question, Together
from advisor_node.slurm.cluster import Partition, SlurmNode
from advisor_node.slurm.matching import (
    GATHER_S,
    HOLD_S,
    START_S,
    Change,
    PlanSets,
    QueueRound,
    with_places,
)
from advisor_node.slurm.queue import Named, SlurmTask

NOW_S, WAIT_S = 100_000.0, 60.0
NODE = SlurmNode(name="n1", partitions=("p",), free_cpus=8, gpus=3, is_shared=True)
PARTITION = Partition(
    name="p", is_default=True, default_min=None, most_min=None, cpus=None, memory_mib=None,
    one_user=True,
)  # fmt: skip
SHARES = {("a", "b"): ("50", "26"), ("a", "c"): ("50", "50"), ("a", "a"): ("40", "40")}
SAVED = {("a", "b"): 0.2, ("a", "c"): 0.15, ("a", "a"): 0.3}


def waiting(key: str, job: str = "", ago_s: float = 20.0, **more: Any) -> SlurmTask:
    """A job that came some time ago and waits for others."""
    made = SlurmTask(
        key=key, user="u", partition="p", pending=True, comment=f"advisor:job={job or key}",
        named=Named(job=job or key), counted=100, eligible_s=NOW_S - ago_s + WAIT_S,
        priority=1.0, limit_min=None, cpus=1, where="", needs_node="", held=False, cards={},
    )  # fmt: skip
    return replace(made, **more)


def begun(key: str, index: int = 0, counted: int = 66, **more: Any) -> SlurmTask:
    """A job that runs on its part of a GPU."""
    named = Named(job=key, share_text="50", counted=counted)
    runs: dict[str, Any] = {"pending": False, "named": named, "counted": counted}
    runs |= {"eligible_s": NOW_S - 90, "cards": {("n1", index): counted}}
    return waiting(key, **(runs | more))


def ask(questions: Collection[Question]) -> Mapping[Question, Answer]:
    return {question: answer(question) for question in questions}


def answer(question: Question) -> Answer:
    names_ = [asked.job for asked in question.jobs]
    if {*names_} <= {*"kmn"}:
        return of_set(question, names_)
    a, b = names_
    for names, order in (((a, b), 1), ((b, a), -1)):
        if names in SHARES:
            shares = SHARES[names][::order]
            return Together(
                shares=(shares[0], shares[1]), energy_saved=SAVED[names], split="/".join(shares),
                low_speeds=(0.5, 0.8)[::order], needs_mib=(1000.0, 2000.0)[::order],
                gpu_model="NVIDIA H200",
            )  # fmt: skip
    return Apart("exclusive is better")


SMALL = {"k": "100", "m": "100", "n": "50"}
"""Shares of jobs that share a GPU with any number of each other; n is held to half of it."""


def of_set(question: Question, names_: list[str]) -> Answer:
    running = tuple(f"{share:g}" for share in question.running)
    shares = (*running, *(SMALL[name] for name in names_[len(running) :]))
    return Together(
        shares=shares, energy_saved=0.1 * len(names_), split="/".join(shares),
        low_speeds=(0.8,) * len(names_), needs_mib=(1000.0,) * len(names_),
        gpu_model="NVIDIA H200",
    )  # fmt: skip


def sets_of(size: int) -> PlanSets:
    """A plan of sets of so many, and of one with those that are left."""

    def plan(jobs: Sequence[JobRequest], _model: str | None) -> NamedSets:
        names_ = [job.job for job in jobs]
        return tuple(tuple(names_[n : n + size]) for n in range(0, len(names_), size))

    return plan


def decided(*jobs: SlurmTask, **more: Any) -> dict[str, Change]:
    made = QueueRound(
        jobs=with_places(jobs, {"n1": NODE}), nodes={"n1": NODE}, partitions={"p": PARTITION},
        ask=ask, now_s=NOW_S, wait_s=WAIT_S,
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


@pytest.mark.parametrize("more", [{"nodes": {"n1": replace(NODE, free_cpus=0)}}, {"nodes": {}}])
def test_it_is_not_sent_where_it_would_not_start(more: dict[str, Any]) -> None:
    assert decided(begun("a"), waiting("b"), **more) == {}


def test_nobody_is_sent_where_another_is_on_his_way() -> None:
    """The GPU that Slurm will give it is taken."""
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
    assert sorted(change.counted for change in decided(*jobs).values()) == [51, 66]


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


def look(jobs: list[SlurmTask], **more: Any) -> list[SlurmTask]:
    """The queue after a look, and after Slurm has started those that were told to start.

    Slurm takes the first GPU with room for what is counted, on a node with three.
    """
    changes = decided(*jobs, **more)
    held = Counter[tuple[str, int]]()
    for job in jobs:
        held.update(job.cards)
    found: list[SlurmTask] = []
    for job in jobs:
        change = changes.get(job.key)
        if change is None:
            found.append(job)
            continue
        told = replace(job, named=change.named, counted=change.counted)
        if change.starts_in_s == 0:
            free = (("n1", n) for n in range(3) if held["n1", n] + change.counted <= 100)
            card = next(free)
            held[card] += change.counted
            told = replace(told, pending=False, cards={card: change.counted}, eligible_s=NOW_S)
        found.append(told)
    return found


def looks(jobs: list[SlurmTask], **more: Any) -> Iterator[list[SlurmTask]]:
    """The queue, look by look, until nothing changes any more."""
    while (after := look(jobs, **more)) != jobs:
        yield (jobs := after)


def on(jobs: list[SlurmTask]) -> dict[int, dict[str, int]]:
    """What is counted of each GPU for whom."""
    found: dict[int, dict[str, int]] = {}
    for job in jobs:
        for (_, index), counted in job.cards.items():
            found.setdefault(index, {})[job.key] = counted
    return found


def test_three_meet_one_after_the_other() -> None:
    """The first begins, the second leaves room for the third, and their parts are a GPU."""
    rounds = [*looks([waiting(key, "k") for key in "123"], sets=sets_of(3))]
    assert [on(jobs) for jobs in rounds] == [
        {0: {"1": 51}}, {0: {"1": 51, "2": 24}}, {0: {"1": 51, "2": 24, "3": 25}},
    ]  # fmt: skip
    named = [job.named for job in rounds[-1]]
    assert [one and one.share_text for one in named] == ["100"] * 3
    # Each finds what it needs, whichever of the others takes what is open to it.
    assert {one and one.memory_mib for one in named} == {136_582 - 2 * 1512}


def test_two_sets_are_on_two_gpus() -> None:
    """Who waits for the first of a set does not begin with one of another, nor join there."""
    *_, end = looks([waiting(key, "k") for key in "123456"], sets=sets_of(3))
    assert [sum(parts.values()) for parts in on(end).values()] == [100, 100]
    assert sorted(map(len, on(end).values())) == [3, 3]


def test_a_set_of_seven_is_on_one_gpu_and_an_eighth_is_not() -> None:
    *_, end = looks([waiting(str(n), "kmn"[n % 3]) for n in range(8)], sets=sets_of(7))
    parts = on(end)[0]
    assert (len(parts), sum(parts.values())) == (7, 100)
    # The first has room on no GPU with others; who is held to half has less in the books.
    assert (parts["0"], parts["1"] > parts["2"]) == (51, True)


def test_more_are_on_one_gpu_where_pairs_would_take_two() -> None:
    assert set(decided(*(waiting(key, "k") for key in "1234"))) == {"1", "3"}
    assert set(decided(*(waiting(key, "k") for key in "1234"), sets=sets_of(4))) == {"1"}


def test_the_others_of_a_set_wait_for_their_turn() -> None:
    """Else they would begin alone while one is sent to the GPU after the other."""
    jobs = [waiting(key, "k", eligible_s=NOW_S + 10) for key in "123"]
    first, *others = look(jobs, sets=sets_of(3))
    change = decided(first, *others, sets=sets_of(3))
    assert (change["2"].node, change["2"].starts_in_s) == ("n1", 0)
    assert (change["3"].counted, change["3"].starts_in_s) == (100, 60)
    sent = replace(others[0], named=change["2"].named, counted=34, needs_node="n1",
                   eligible_s=NOW_S)  # fmt: skip
    third = decided(first, sent, others[1], sets=sets_of(3))["3"]
    assert (third.node, third.counted) == ("n1", 15)
    assert "beside job 1 (k) and job 2 (k)" in third.why


def test_a_plan_that_has_changed_asks_for_who_joins() -> None:
    """Who has begun keeps its share, and is joined by the next that fits beside it."""
    first = begun("n", named=Named(job="n", share_text="40", counted=30), cards={("n1", 0): 30})
    change = decided(first, waiting("2", "k"), waiting("3", "k"), sets=sets_of(3))
    assert change["2"].named.share_text == "100"
    assert change["2"].counted == 70


@pytest.mark.parametrize(
    "more",
    [{"user": "other"}, {"limit_min": 100}, {"named": Named(job="k", beside="k")}, {"held": True}],
)
def test_a_set_keeps_the_rules_of_a_pair(more: dict[str, Any]) -> None:
    """Users, time limits that must fit, one job alone beside it, who waits for something else."""
    short = {"p": replace(PARTITION, most_min=110)}
    jobs = [waiting("1", "k"), waiting("2", "k"), waiting("3", "k", **more)]
    change = decided(*jobs, sets=sets_of(3), partitions=short)
    assert change["1"].counted == 51


def test_jobs_of_which_nobody_knows_spoil_no_plan() -> None:
    """The service would refuse to plan for all of them."""
    asked: list[list[str]] = []

    def plan(jobs: Sequence[JobRequest], model: str | None) -> NamedSets:
        asked.append([job.job for job in jobs])
        return sets_of(3)(jobs, model)

    jobs = [waiting("0", "unknown"), *(waiting(key, "k") for key in "123")]
    assert set(decided(*jobs, sets=plan)) == {"1"}
    assert asked == [["k"] * 3]
