"""Who of a queue shares a GPU, without Slurm: pairs, joins, places, time limits, who is alone."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from reading import some

from advisor.client import Client, JobRequest
from advisor.errors import InputError, SourceError
from advisor.settings import read_settings
from advisor_node import room
from advisor_node.advice import (
    Answer,
    Apart,
    NamedSets,
    NoAnswer,
    Offer,
    Question,
    Together,
    matched,
    weighed,
)
from advisor_node.slurm import agent
from advisor_node.slurm.agent import GpuFolder, SlurmAgent, SlurmJob, parse_status, run_agent
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
from advisor_profiling.telemetry import nvml

NOW_S, WAIT_S = 100_000.0, 60.0
NODE = SlurmNode(name="n1", partitions=("p",), free_cpus=8, gpus=3, is_shared=True)
PARTITION = Partition(
    name="p", is_default=True, default_min=None, most_min=None, cpus=None, memory_mib=None,
    single_user=True,
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


def test_nobody_waits_for_a_drained_node() -> None:
    """All are told why; what runs there stays, and where another node is left they share that."""
    gone = {"n1": replace(NODE, drained="Duplicate jobid")}
    first = begun("a", pending=True, cards={}, eligible_s=NOW_S - 5)
    sent = begun("c", pending=True, cards={}, needs_node="n1", eligible_s=NOW_S - 5)
    found = decided(first, sent, begun("a", index=1), waiting("b"), nodes=gone)
    assert found.keys() == {"a", "b", "c"}
    for change in found.values():
        assert (change.counted, change.named.share_text, change.starts_in_s) == (100, "100", 0)
        assert change.why == "a whole GPU: node n1 is drained (Duplicate jobid)"
    assert (found["a"].node, found["b"].node, found["c"].node) == (None, None, "")
    other = {**gone, "n2": replace(NODE, name="n2")}
    assert decided(begun("a"), waiting("b"), nodes=other) == {}
    assert decided(waiting("a"), waiting("b"), nodes=other)["a"].counted == 66


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
        if (change := changes.get(job.key)) is None:
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
    assert (change["2"].named.share_text, change["2"].counted) == ("100", 70)


@pytest.mark.parametrize(
    "more",
    [{"user": "other"}, {"limit_min": 100}, {"named": Named(job="k", beside="k")}, {"held": True}],
)
def test_a_set_keeps_the_rules_of_a_pair(more: dict[str, Any]) -> None:
    short = {"p": replace(PARTITION, most_min=110)}
    jobs = [waiting("1", "k"), waiting("2", "k"), waiting("3", "k", **more)]
    assert decided(*jobs, sets=sets_of(3), partitions=short)["1"].counted == 51


def test_jobs_of_which_nobody_knows_spoil_no_plan() -> None:
    """The service would refuse to plan for all of them."""
    asked: list[list[str]] = []

    def plan(jobs: Sequence[JobRequest], model: str | None) -> NamedSets:
        asked.append([job.job for job in jobs])
        return sets_of(3)(jobs, model)

    jobs = [waiting("0", "unknown"), *(waiting(key, "k") for key in "123")]
    assert (set(decided(*jobs, sets=plan)), asked) == ({"1"}, [["k"] * 3])


SEVERAL = {"p": replace(PARTITION, single_user=False)}
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
        ([begun("a"), waiting("b")], {"nodes": {"n1": replace(NODE, free_cpus=0)}}, ""),
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


H200 = "NVIDIA H200"


def offer(*kinds: int, running: int = 0, **more: Any) -> Offer:
    jobs = tuple(JobRequest(job=f"j{kind}") for kind in kinds)
    asked = Question(jobs=jobs, model=H200, running=(50.0,) * running)
    return replace(Offer(kinds=kinds, question=asked), **more)


def together(saved: float = 0.1, needs_mib: tuple[float | None, ...] = ()) -> Together:
    return Together(shares=(), needs_mib=needs_mib, energy_saved=saved, split="")


def taken(
    counts: list[int], free_gpus: int, **saved: tuple[Offer, float]
) -> Counter[tuple[int, ...]]:
    offers = [(one, together(energy)) for one, energy in saved.values()]
    return Counter(found.kinds for found, _ in matched(counts, offers, free_gpus))


def test_a_gpu_less_counts_before_what_is_saved() -> None:
    """Three on one GPU are two GPUs less, two pairs as many; a pair that saves much is one."""
    three, pair, other = offer(0, 1, 2), offer(0, 1), offer(2, 3)
    assert taken([1] * 4, 0, a=(three, 0.1), b=(pair, 0.9)) == {(0, 1, 2): 1}
    assert taken([1] * 4, 0, a=(three, 0.1), b=(pair, 0.2), c=(other, 0.1)) == {
        (0, 1): 1,
        (2, 3): 1,
    }


def test_the_solver_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    """Its lines would stand in the log between those of decisions."""
    assert taken([1] * 9, 0, **{f"o{n}": (offer(n, (n + 1) % 9), 0.1 * n) for n in range(9)})
    assert capfd.readouterr() == ("", "")


def test_offers_are_taken_as_often_as_there_are_jobs_and_free_gpus() -> None:
    twice = offer(0, 0, takes_gpu=True)
    for free_gpus, times in ((9, {(0, 0): 2}), (1, {(0, 0): 1}), (0, {})):
        assert taken([5], free_gpus, a=(twice, 0.1)) == times
    assert taken([5], 0) == {}
    late, good = offer(0, 1, takes_gpu=True, ahead=1), offer(1, 2, takes_gpu=True)
    assert taken([1, 1, 1], 1, a=(late, 0.1), b=(good, 0.9)) == {(0, 1): 1}


def judged(one: Offer, answer: Answer | None) -> Answer | None:
    [(_, found)] = weighed([one], lambda asked: dict.fromkeys(asked, answer) if answer else {})
    return found


@pytest.mark.parametrize(
    ("bound_mib", "card_mib", "joins"),
    [(134_070, None, True), (134_071, None, False), (60_000, 64_000, False), (None, None, True)],
)
def test_who_joins_finds_its_memory(
    bound_mib: float | None, card_mib: float | None, joins: bool
) -> None:
    one = offer(0, 1, running=1, bounds_mib=(bound_mib,))
    one = replace(one, question=replace(one.question, memory_mib=card_mib))
    answer = together(needs_mib=(1000.0, 2000.0))
    found = judged(one, answer)
    assert (found == answer) is joins
    if not joins:
        assert isinstance(found, Apart)
        assert f"j0 runs and may take {bound_mib:,} MiB of the " in found.why


def test_nobody_shares_to_stand_still() -> None:
    """A model may say that one of two would hardly run."""
    good, bad = (replace(together(), low_speeds=(0.9, low)) for low in (0.05, 0.04))
    assert judged(offer(0, 1), good) == good
    assert isinstance(judged(offer(0, 1), bad), Apart)
    for said in (None, NoAnswer("away"), Apart("exclusive is better")):
        assert judged(offer(0, 1), said) == said


USER = os.geteuid()


def job_folder(root: Path, number: str = "42", comment: str = "advisor:job=gemm") -> Path:
    """A folder as Prolog and TaskProlog leave it."""
    folder = root / f"gpu0-{USER}/jobs" / number
    folder.mkdir(parents=True)
    (folder / "comment").write_text(comment)
    (folder / "share").write_text("26.5")
    return folder


# Comments


@pytest.mark.parametrize(
    ("text", "job"),
    [
        *(
            (text, "gemm")
            for text in (
                "advisor:job=gemm", "advisor:job=gemm,with=bert", "\tadvisor:job=gemm\n",
                "my run advisor:job=gemm,with=bert v2",
                "advisor:job=gemm,p99=40,speed=0.6,share=26.5,counted=34,memory=2512",
                "project=x;advisor:job=gemm;y",
            )
        ),
        # Others name none, and are left alone.
        *((text, None) for text in ("", "advisor", "xadvisor:job=gemm", "job=a", "advisor job=a")),
    ],
)  # fmt: skip
def test_a_comment_names_a_job_or_none(text: str, job: str | None) -> None:
    named = Named.read(text)
    assert (named and named.job) == job


@pytest.mark.parametrize(
    "text",
    [
        "advisor:", "advisor:gemm", "advisor:job=", "advisor:job=../gemm", "advisor:job=a,share=0",
        "advisor:job=a,with=b,with=c", "advisor:JOB=a", "advisor:job=" + "a" * 101,
        "advisor:job=gemm\0", "advisor:job=a,share=100.5", "advisor:job=a,counted=101",
        "advisor:job=g\u00e4mm",
    ],
)  # fmt: skip
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="write advisor:job=NAME"):
        Named.read(text)


@given(st.text())
def test_any_comment_is_read_or_refused(text: str) -> None:
    for told in (text, f"advisor:{text}", f"advisor:job=a,share={text}"):
        try:
            named = Named.read(told)
        except InputError:
            continue
        assert named is None or (named.job.isascii() and 1 <= len(named.job) <= 100)
        assert named is None or 1 <= named.share().percent <= 100


def test_what_is_decided_takes_the_place_of_what_was_asked() -> None:
    asked = some(Named.read("run 7;Advisor:job=a,p99=40 v2"))
    assert asked == Named(job="a", max_p99_ms=40.0)
    told = replace(asked, share_text="26.5", counted=34, memory_mib=2512)
    comment = told.in_comment("run 7;Advisor:job=a,p99=40 v2")
    assert comment == "run 7;advisor:job=a,p99=40,share=26.5,counted=34,memory=2512 v2"
    assert Named.read(comment) == told


# Records


def test_a_job_is_read(tmp_path: Path) -> None:
    folder = job_folder(tmp_path)
    [gpu] = GpuFolder.all_in(tmp_path)
    assert (gpu.index, gpu.user, gpu.pipe_dir) == (0, USER, tmp_path / f"gpu0-{USER}/pipe")
    assert gpu.job_folders() == [folder]
    job = some(SlurmJob.read(folder))
    assert job == SlurmJob(uid="42", job="gemm", share_text="26.5", folder=folder)
    assert (job.share.percent, job.over) == (26.5, False)


def test_other_names_are_no_jobs(tmp_path: Path) -> None:
    for name in ("gpu-1", "gpu0", "gpu0-root", "gpu0-1-2", "gpux-0"):
        (tmp_path / name).mkdir()
    assert list(GpuFolder.all_in(tmp_path)) == []
    folder = job_folder(tmp_path)
    for name in ("0", "x", "4 2", "42.0", "-1", "1" * 11):
        (folder.parent / name).mkdir()
    [gpu] = GpuFolder.all_in(tmp_path)
    assert gpu.job_folders() == [folder]


def test_a_job_whose_task_has_not_begun_is_none_yet(tmp_path: Path) -> None:
    folder = job_folder(tmp_path)
    (folder / "share").write_text("")
    assert SlurmJob.read(folder) is None
    (folder / "share").unlink()
    assert SlurmJob.read(folder) is SlurmJob.read(job_folder(tmp_path, "43", "nightly run")) is None
    assert SlurmJob.read(job_folder(tmp_path, "45", "advisor:job=auto")) is None, "nobody named it"
    assert SlurmJob.read(folder.with_name("44")) is None


@pytest.mark.parametrize("name", ["share", "comment"])
def test_nothing_is_followed(tmp_path: Path, name: str) -> None:
    folder = job_folder(tmp_path)
    place = folder / name
    place.symlink_to(place.rename(tmp_path / name))
    assert SlurmJob.read(folder) is None
    place.unlink()
    os.mkfifo(place)
    assert SlurmJob.read(folder) is None


@pytest.mark.skipif(USER != 0, reason="needs root, to give a file away")
@pytest.mark.parametrize("name", ["share", "comment"])
def test_what_is_not_roots_is_none(tmp_path: Path, name: str) -> None:
    folder = job_folder(tmp_path)
    os.chown(folder / name, 65534, -1)
    assert SlurmJob.read(folder) is None


# Ends


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("0", "finished"),
        (str(3 << 8), "failed"),
        (str(int(signal.SIGSEGV)), "failed"),
        (str(int(signal.SIGTERM)), "stopped"),
        (str(int(signal.SIGKILL)), "stopped"),
        ("", "stopped"),
        ("-1", "stopped"),
        ("0:0", "stopped"),
        ("9" * 9, "stopped"),
    ],
)
def test_the_state_is_that_of_the_exit_status(status: str, state: str) -> None:
    """Scancel and the time limit stop a job; what fails is no example for others."""
    assert parse_status(status) == state


def test_the_exit_status_is_taken_away(tmp_path: Path) -> None:
    folder = job_folder(tmp_path)
    gpu = GpuFolder(path=folder.parents[1], index=0, user=USER)
    job = some(SlurmJob.read(folder))
    (gpu.path / "ended").mkdir()
    (gpu.path / "ended/42").write_text("0")
    after = gpu.ended(job)
    assert (after.state, after.over) == ("finished", True)
    assert (list((gpu.path / "ended").iterdir()), gpu.ended(job).state) == ([], "stopped")


# The agent of a Slurm node without a GPU: when it ends, and what it leaves out.


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "list_gpus", list[Any])


def test_it_ends_when_there_was_nothing_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next Prolog starts another one, which reads its settings again."""
    monkeypatch.setattr(room, "LOOK_S", 0.001)
    monkeypatch.setattr(agent, "_IDLE_S", 0.01)
    looks, look_at_node, stop = list[SlurmAgent](), SlurmAgent.look, threading.Event()

    def look(one: SlurmAgent) -> None:
        look_at_node(one)
        looks.append(one)  # only where nothing went wrong

    monkeypatch.setattr(SlurmAgent, "look", look)
    with Client("http://127.0.0.1:9") as service:
        run_agent(tmp_path, read_settings({}), service, stop)
    assert looks
    assert not stop.is_set()


def test_a_fault_of_ours_ends_no_agent(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take the daemons of its node along, and with them the jobs of all."""
    monkeypatch.setattr(room, "LOOK_S", 0.001)

    def look() -> None:
        raise TypeError("a user that is no number")

    looks = room.keep_looking(look, threading.Event())
    next(looks)
    next(looks)
    assert caplog.messages == ["an internal error"] * 2


def no_driver() -> list[Any]:
    raise SourceError("NVML does not answer")


@pytest.mark.parametrize(
    ("listed", "why"),
    [
        (list[Any], "there is no GPU 3. the driver counts 0 GPUs"),
        (no_driver, "NVML does not answer"),
    ],
)
def test_a_gpu_that_the_driver_does_not_count_is_left_out(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    listed: Callable[[], list[Any]],
    why: str,
) -> None:
    monkeypatch.setattr(nvml, "list_gpus", listed)
    folder = tmp_path / f"gpu3-{os.geteuid()}/jobs/42"
    folder.mkdir(parents=True)
    (folder / "comment").write_text("advisor:job=gemm")
    (folder / "share").write_text("50")
    with Client("http://127.0.0.1:9") as service:
        one = SlurmAgent(tmp_path, read_settings({}), service)
        for _ in range(3):
            one.look()
    [said] = caplog.messages
    assert f"is left out: {why}" in said
    assert not one.is_busy
