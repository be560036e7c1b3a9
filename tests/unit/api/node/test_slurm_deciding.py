"""Who of a queue shares a GPU, without Slurm: pairs, joins, places, time limits, who is alone."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from advisor.client import JobRequest
from advisor_node.advice import Answer, Apart, NamedSets, Question, Together
from advisor_node.slurm.matching import (
    GATHER_S,
    HOLD_S,
    START_S,
    Change,
    PlanSets,
    QueueRound,
    with_places,
)
from advisor_node.slurm.site import Named, Partition, SlurmNode, SlurmTask

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
    [change] = decided(waiting("a"), waiting("b")).values()
    assert (change.job.key, change.counted, change.starts_in_s, change.node) == ("a", 66, 0, None)
    named = change.named
    assert (named.share_text, named.counted, named.memory_mib) == ("50", 66, 134_070)
    # The next look says the same of nobody.
    after = replace(change.job, named=named, counted=change.counted, eligible_s=NOW_S)
    assert decided(after, waiting("b")) == {}


def test_the_other_is_sent_to_the_node_of_the_first() -> None:
    change = decided(begun("a"), waiting("b"))["b"]
    assert (change.counted, change.node, change.named.share_text) == (34, "n1", "26")
    assert "beside job a (a), split 50/26, at most 135,070 MiB of its memory" in change.why


def test_a_time_limit_leaves_the_job_its_work() -> None:
    change = decided(waiting("a", limit_min=50), waiting("b", limit_min=60))["a"]
    assert change.limit_min == 100
    assert "time limit 100 min, since it runs at 50 %" in change.why
    assert decided(begun("a"), waiting("b", limit_min=60))["b"].limit_min == 75
    default = {"p": replace(PARTITION, default_min=10)}
    assert decided(waiting("a"), waiting("b"), partitions=default)["a"].limit_min == 20


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
    rounds = [*looks([waiting(key, "k") for key in "123"], sets=sets_of(3))]
    assert [on(jobs) for jobs in rounds] == [
        {0: {"1": 51}}, {0: {"1": 51, "2": 24}}, {0: {"1": 51, "2": 24, "3": 25}},
    ]  # fmt: skip
    named = [job.named for job in rounds[-1]]
    assert [one and one.share_text for one in named] == ["100"] * 3
    # Each finds what it needs, whichever of the others takes what is open to it.
    assert {one and one.memory_mib for one in named} == {136_582 - 2 * 1512}


def test_two_sets_are_on_two_gpus() -> None:
    *_, end = looks([waiting(key, "k") for key in "123456"], sets=sets_of(3))
    assert [sum(parts.values()) for parts in on(end).values()] == [100, 100]
    assert sorted(map(len, on(end).values())) == [3, 3]


def test_a_set_of_seven_is_on_one_gpu_and_an_eighth_is_not() -> None:
    *_, end = looks([waiting(str(n), "kmn"[n % 3]) for n in range(8)], sets=sets_of(7))
    parts = on(end)[0]
    assert (len(parts), sum(parts.values())) == (7, 100)
    # The first has room on no GPU with others; who is held to half has less in the books.
    assert (parts["0"], parts["1"] > parts["2"]) == (51, True)


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
    first = begun("n", named=Named(job="n", share_text="40", counted=30), cards={("n1", 0): 30})
    change = decided(first, waiting("2", "k"), waiting("3", "k"), sets=sets_of(3))
    assert change["2"].named.share_text == "100"
    assert change["2"].counted == 70


@pytest.mark.parametrize(
    "more",
    [{"user": "other"}, {"limit_min": 100}, {"named": Named(job="k", beside="k")}, {"held": True}],
)
def test_a_set_keeps_the_rules_of_a_pair(more: dict[str, Any]) -> None:
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


FULL = {"n1": replace(NODE, free_cpus=0)}
SEVERAL = {"p": replace(PARTITION, one_user=False)}
SHORT = {"p": replace(PARTITION, most_min=70)}
# On its way to the GPU that Slurm will give it.
SENT = waiting(
    "x", named=Named(job="x", share_text="26", counted=34), counted=34, needs_node="n1",
    eligible_s=NOW_S - 1,
)  # fmt: skip
OTHERS: list[dict[str, Any]] = [
    {"user": "other"}, {"where": "h200"}, {"partition": "other"}, {"held": True},
    {"counted": 30}, {"named": Named(job="b", beside="x")}, {"eligible_s": NOW_S + 500},
]  # fmt: skip
THIRD = waiting("m", named=None, pending=False, cards={("n1", 0): 10}, eligible_s=NOW_S)
BEFORE = begun("x", counted=90, named=Named(job="x", share_text="90", counted=90))


@pytest.mark.parametrize(
    ("jobs", "more", "changed"),
    [
        # Jobs that have just come are gathered.
        ([waiting("a", ago_s=GATHER_S - 1), waiting("b", ago_s=0)], {}, ""),
        *(
            ([waiting("a"), waiting("b", **other)], {}, "")
            for other in OTHERS
        ),
        ([waiting("a"), waiting("b", user="other")], {"partitions": SEVERAL}, "a"),
        # A time limit that the partition does not allow: neither is killed for having shared.
        ([waiting("a", limit_min=50), waiting("b", limit_min=10)], {"partitions": SHORT}, ""),
        ([waiting("a", limit_min=10), waiting("b", limit_min=60)], {"partitions": SHORT}, ""),
        ([waiting("a", limit_min=30), waiting("b", limit_min=30)], {"partitions": SHORT}, "a"),
        # Nobody joins where it would not start, nor on a GPU that another job takes or shares.
        ([begun("a"), waiting("b")], {"nodes": FULL}, ""),
        ([begun("a"), waiting("b")], {"nodes": {}}, ""),
        ([begun("a"), SENT, waiting("b")], {}, ""),
        ([begun("a"), replace(SENT, counted=50), waiting("b")], {}, "b"),
        ([begun("a"), THIRD, waiting("b")], {}, ""),
        # Slurm takes the first GPU that fits.
        ([begun("a", index=1), waiting("b")], {}, ""),
        ([begun("a", index=1), BEFORE, waiting("b")], {}, "b"),
        # All together save most, not the pair that saves most and leaves two alone.
        ([waiting(n, job) for n, job in ("1a", "2a", "3b", "4c")], {}, "12"),
        ([waiting(n, job) for n, job in ("1a", "2a", "3b", "4b")], {}, "12"),
        # More are on one GPU where pairs would take two.
        ([waiting(n, "k") for n in "1234"], {}, "13"),
        ([waiting(n, "k") for n in "1234"], {"sets": sets_of(4)}, "1"),
    ],
)  # fmt: skip
def test_some_meet_and_some_may_not(
    jobs: list[SlurmTask], more: dict[str, Any], changed: str
) -> None:
    assert set(decided(*jobs, **more)) == {*changed}
