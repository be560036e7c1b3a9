"""A queue of jobs on the GPUs of one host: starts and joins, until all are done."""

import itertools
import math
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from statistics import median
from typing import TypeAlias

from advisor.core.gpu import WHOLE, Gpu, Split
from advisor.core.job import Job
from advisor.core.objectives import AIMS, DEFAULT_OBJECTIVE, Interval, Work
from advisor.core.records import grouped
from advisor.decide.decision import Decision, Running, best_of
from advisor.decide.limits import TO_THE_END, Request, is_served
from advisor.errors import (
    AdvisorError,
    BusyError,
    InputError,
    NoSplitError,
    PartitionError,
    SourceError,
    SurvivorsError,
)
from advisor.formats.moments import duration_text
from advisor.launch.folder import (
    LaunchFolder,
    ask_join,
    close_unclaimed,
    create_folder,
    find_folder,
    new_launch_id,
)
from advisor.launch.guard import spawn_supervisor
from advisor.launch.run_queue import (
    LaunchedJob,
    LaunchView,
    QueueFile,
    QueueRecord,
    account_for,
    must_be_alone,
    see,
    waiting,
)
from advisor.launch.spec import LaunchPart, LaunchSet, LaunchSpec
from advisor.placement import solver
from advisor.placement.placing import Ask, Kind, Placing, Pool
from advisor.predict.predictions import Prediction, predicted_part
from advisor.predict.profiles import Profile
from advisor.predict.sets import OptionPredictor, fills
from advisor.settings import Settings
from advisor_advice.conditions import AdvisorInputs, find_profiles
from advisor_advice.forecasting import criteria_of, options_to_try, with_forecast
from advisor_advice.launching import TRY_S, ResolvedLaunch, make_join
from advisor_advice.placing import decider_of, pool_of
from advisor_profiling import SUPERVISOR


@dataclass(frozen=True, eq=False, kw_only=True)
class QueueCard:
    """A GPU of the queue: the request of its launches, and profiles and predictions of the jobs.

    Attributes:
        lacking: Names of jobs that can only run alone, and why.
        inputs: Of the other jobs; None: there are none.
        request: What these are to keep.
    """

    wanted: ResolvedLaunch
    lacking: Mapping[str, str]
    inputs: AdvisorInputs | None = None
    request: Request = field(default_factory=Request)

    @property
    def gpu(self) -> Gpu:
        """The card; a queue runs on none that was not seen."""
        assert self.wanted.card is not None
        return self.wanted.card

    @cached_property
    def profiles(self) -> Mapping[str, Profile]:
        """By name of job."""
        return {p.job: p for p in self.inputs.profile_set.profiles} if self.inputs else {}

    def expected(self, jobs: Sequence[str], split: Split) -> Prediction | None:
        """What jobs do together; None: one of them has no profile, or none at its share."""
        if not self.inputs or not jobs or any(job not in self.profiles for job in jobs):
            return None
        predictor, profiles = self.inputs.conditions.applied(
            OptionPredictor(self.inputs.model), [self.profiles[job] for job in jobs]
        )
        try:
            if len(jobs) == 1:
                at = profiles[0].at(split.shares[:1])
                # A server has no more than its demand to do.
                speed = min(1.0, float(at["rate"][0]) / profiles[0].whole_gpu_rate)
                return Prediction(
                    split=Split(split.shares[:1]),
                    parts=(predicted_part(profiles[0], Interval.sure(speed)),),
                    power_w=Interval.sure(float(at["power_w"][0])),
                )
            return predictor.predict(profiles, [split])[0]
        except InputError:
            return None

    def held_to(self, part: LaunchPart) -> LaunchPart:
        """The job with its limits, which are watched and hold for jobs that join."""
        if (profile := self.profiles.get(part.job.name)) is None:
            return part
        least, most_ms = self.request.floor(profile), self.request.longest_p99_ms(profile)
        return replace(part, min_speed=least, max_p99_ms=most_ms)

    def needing(self, least: Mapping[str, float]) -> "QueueCard":
        """The same where jobs need these speeds, too."""
        needed = {
            name: max(speed, self.request.min_speed_of(name)) for name, speed in least.items()
        }
        request = replace(self.request, min_speed={**self.request.min_speed, **needed})
        return replace(self, request=request)

    def launch_set(self, jobs: Sequence[Job], split: Split, settings: Settings) -> LaunchSet:
        """Jobs at a split, with what to expect of them and what they are held to.

        Raises:
            StoreError: what the check of the GPU model found cannot be read.
        """
        parts = tuple(self.held_to(LaunchPart(job=job)) for job in jobs)
        # No running job has a limit; a job that joins may need one.
        split = replace(split, sharing="limited") if split.sharing == "uncapped" else split
        made = LaunchSet(split=split, parts=parts, open_percent=WHOLE)
        return with_forecast(made, self.wanted, settings)[0]

    @classmethod
    def read(cls, jobs: Sequence[Job], wanted: ResolvedLaunch, settings: Settings) -> "QueueCard":
        """What is known of jobs on the card that is wanted; a job without a profile runs alone.

        Raises:
            InputError: a limit is for none of the jobs.
            ModelError: there is no model, or it is damaged.
            StoreError: the store cannot be read.
        """
        profiled: list[Job] = []
        lacking: dict[str, str] = {}
        for job in {job.name: job for job in jobs}.values():
            try:
                find_profiles([job.name], settings, wanted.gpu_model, wanted.profiles)
                profiled.append(job)
            except InputError as error:
                lacking[job.name] = error.what
        if not profiled:
            return cls(wanted=wanted, lacking=lacking)
        profile_set, request = criteria_of(profiled, wanted, settings)
        inputs = AdvisorInputs.read(profile_set, settings, wanted.gpu_uuid, any_of=True)
        filled, _ = profile_set.with_idle_power_filled(inputs.model.manifest.fill)
        inputs = replace(inputs, profile_set=filled)
        return cls(wanted=wanted, lacking=lacking, inputs=inputs, request=request)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCard:
    """An empty GPU, or one whose jobs another one can join.

    Attributes:
        able: Names of jobs with a profile that may run there beside others.
        running: Names of the jobs that run there and keep their shares (`there`); what they do is
            known.
        brief: Names of those that may get a limit where they fill the GPU, as they end before
            others there; None: all may.
    """

    card: QueueCard
    able: frozenset[str]
    running: tuple[str, ...] = ()
    there: Running | None = None
    brief: frozenset[str] | None = None

    def pool(self, kinds: Sequence[Kind], gpus: int) -> Pool:
        """So many GPUs like it."""
        card, there = self.card, self.there
        assert card.inputs
        names, able = [kind.name for kind in kinds], {*self.able, *self.running}
        profiles = tuple(card.profiles[name] if name in able else None for name in names)
        request = card.request.of(filter(None, profiles))
        ask = decider_of(card.inputs, request, there)
        return replace(
            pool_of(card.inputs, card.inputs.profile_set, gpus, kinds, request),
            profiles=profiles,
            ask=ask if self.brief is None else _briefly(ask, len(self.running), self.brief),
            running=tuple(map(names.index, self.running)),
            now=there and card.expected(self.running, there.split),
        )


def _briefly(ask: Ask, running: int, brief: Collection[str]) -> Ask:
    """Only brief jobs begin with a limit: it stays when the neighbours that it is for have ended.

    A server keeps its promise only where others have limits.
    """

    def decide_briefly(jobs: Sequence[Profile], work: Work | None) -> Decision | None:
        decision, news = ask(jobs, work), {job.job for job in jobs[running:]}
        if decision is None or any(map(is_served, jobs)) or news <= {*brief}:
            return decision
        policy, apart = decision.request.policy, decision.apart
        free = [
            option
            for option in decision.options[:-1]
            if min(option.split.shares[running:]) == WHOLE and not option.violations
            if option.score >= apart.value * (1 + policy.min_gain)
        ]
        return replace(decision, choice=best_of(free, jobs, policy.tie) if free else None)

    return decide_briefly


# A set that has a GPU until all its jobs have ended: its seconds, its jobs, and their split; None:
# these start together, and others join.
_Planned: TypeAlias = tuple[float, tuple[str, ...], Split | None]


@lru_cache(maxsize=2)
def _planned_to_the_end(
    card: QueueCard, inputs: AdvisorInputs, jobs: tuple[tuple[str, float], ...], gpus: int
) -> Sequence[_Planned]:
    """Sets that have a GPU until they have ended, by the plan of a queue of `advisor place`.

    Those with a job that fills the GPU: few others can share it, so these are kept for it. All
    others start together, first, as starts side by side take the time of one. Those beside a job
    that fills are among them where this takes less GPU time. Then the longest first; none: there is
    no plan. `jobs` have the seconds that each takes alone; all GPUs are alike.
    """
    waits, plans = [name for name, _ in jobs], list[list[_Planned]]()
    full = tuple(job for job in jobs if fills(card.profiles[job[0]]))
    policy = card.request.policy
    aim = policy.deciding if policy.deciding in TO_THE_END else DEFAULT_OBJECTIVE
    with suppress(InputError, NoSplitError):
        for some in dict.fromkeys(filter(None, (jobs, full))):
            order, counts = sorted({*some}), Counter(some)
            kinds = [Kind(name=name, count=counts[name, s], work_s=s) for name, s in order]
            request = card.request.of([card.profiles[name] for name in sorted(dict(some))])
            pool = pool_of(inputs, inputs.profile_set, gpus, kinds, request)
            placing = Placing.of(kinds, [pool], aim, policy.prices, [*map(order.index, some)])
            # Whenever a GPU is empty; of twelve jobs it takes a third of a second.
            sets = Counter(solver.place(placing, time_limit_s=5.0).sets).elements()
            filling: list[_Planned] = [
                (s.time_s, tuple(kinds[kind].name for kind in s.kinds), s.split or Split((WHOLE,)))
                for s in sets
                if any(kinds[kind].name in dict(full) for kind in s.kinds)
            ]
            filling.sort(
                key=lambda planned_set: (-planned_set[0], min(map(waits.index, planned_set[1])))
            )
            left = Counter(waits) - Counter(name for _, names, _ in filling for name in names)
            light = tuple(left.elements())
            together = [(max(s for name, s in jobs if name in left), light, None)] if light else []
            plans.append([*together, *filling])
        return min(plans, key=lambda plan: sum(planned_set[0] for planned_set in plan))
    return ()


# Jobs that start on an empty GPU, or one that joins, and the split of all that run there then.
_Move: TypeAlias = tuple[QueueCard, tuple[str, ...], Split]


@lru_cache(maxsize=2)
def planned(cards: tuple[OpenCard, ...], waiting: tuple[str, ...]) -> Sequence[_Move]:
    """Which waiting jobs start or join where, by the plan of `advisor place`; servers first."""
    if not (able := {name for open_card in cards for name in open_card.able} & {*waiting}):
        return ()
    counts = Counter(name for name in waiting if name in able)
    profiles = {name: profile for card in cards for name, profile in card.card.profiles.items()}
    names = sorted({*able, *(name for card in cards for name in card.running)})
    kinds = [Kind(name=n, count=counts[n], is_server=is_served(profiles[n])) for n in names]
    alike = grouped(
        sorted(cards, key=lambda card: bool(card.running)),
        lambda card: card if card.running else card.card.wanted.gpu_model,
    )
    pools = [of_kind[0].pool(kinds, len(of_kind)) for of_kind in alike.values()]
    policy = cards[0].card.request.policy
    aim = policy.deciding if policy.deciding in AIMS else DEFAULT_OBJECTIVE
    placing = Placing.of(kinds, pools, aim, policy.prices, at_once=True)
    plan, free = solver.place(placing, time_limit_s=math.inf), list(map(iter, alike.values()))
    moves: list[_Move] = []
    for placed_set in Counter(plan.sets).elements():
        there, split = next(free[placed_set.pool]), placed_set.split or Split((WHOLE,))
        if not there.running:
            order = sorted(
                range(len(seats := placed_set.kinds)),
                key=lambda n: (not kinds[seats[n]].is_server, waiting.index(names[seats[n]])),
            )
            placed_set = replace(placed_set, kinds=tuple(seats[n] for n in order))
            split = split.ordered(order)
        moves.append((there.card, tuple(names[kind] for kind in placed_set.kinds), split))
    return moves


# What goes wrong with a GPU, whatever job is started on it.
_OF_GPU = {error.code: error for error in (BusyError, PartitionError, SourceError, SurvivorsError)}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLook:
    """A queue at one moment.

    Attributes:
        launches: Those that are under way.
        waiting: Names of the jobs that wait, in the order of the queue.
    """

    record: QueueRecord
    launches: tuple[LaunchView, ...]
    waiting: tuple[str, ...]


class QueueRun:
    """One queue, of which this process has the file.

    Args:
        jobs: As their files are now; one that is wanted several times so often.
        cards: GPUs on which jobs may be started.
        limits_s: How long jobs may run, by their names; servers run until they are ended.
        works_s: How long jobs take alone, by their names.
        due_s: In which time jobs are to be done, from when their queue began with that.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        cards: Sequence[QueueCard],
        file: QueueFile,
        settings: Settings,
        limits_s: Mapping[str, float] | None = None,
        works_s: Mapping[str, float] | None = None,
        due_s: Mapping[str, float] | None = None,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self._limits_s, self._given_works_s, self._clock_s = limits_s or {}, works_s or {}, clock_s
        self.cards, self._file, self._settings = tuple(cards), file, settings
        self._requested_cards, self._least = self.cards, dict[str, float]()
        self.names = tuple(job.name for job in jobs)
        self._jobs: Mapping[str, Job] = {job.name: job for job in jobs}
        self._record = file.read().to_go_on()
        new, due_before = (
            {n: (s, clock_s() + s) for n, s in (due_s or {}).items()},
            self._record.due,
        )
        due = {
            n: due_before[n] if n in due_before and due_before[n][0] == new_due[0] else new_due
            for n, new_due in new.items()
        }
        self._record = replace(self._record, due=due)
        self._due_s = {name: due_at for name, (_, due_at) in self._record.due.items()}
        self._refused: set[tuple[str, str]] = set()
        self._supervisors: dict[str, subprocess.Popen[bytes]] = {}
        self.stopping = False

    @property
    def works_s(self) -> Mapping[str, float]:
        """How long jobs take alone, by their names: as told, else as an equal one took."""
        ended = self._record.ended
        took_s = {job.job: job.alone_s for job in ended if job.came == "finished" and job.alone_s}
        return took_s | {**self._given_works_s}

    def take_up(self) -> None:
        """Let launches begin that were noted and whose supervisors never began.

        Raises:
            OSError: one cannot be started.
        """
        for launch_id in self._record.launches:
            folder = LaunchFolder(self._root / launch_id)
            if (folder.path / "spec.json").is_file() and not folder.claimed():
                self._spawn(folder)

    def stop(self) -> None:
        """Have everything end that runs; nothing is started any more."""
        self.stopping = True

    def is_server(self, name: str) -> bool:
        """Whether a job answers requests until it is ended."""
        return self._jobs[name].offered_rate is not None

    def late_text(self, name: str) -> str | None:
        """Why a job that waits cannot be done by its deadline; None: it can, or has none."""
        if self.spare_s(name) >= 0:
            return None
        left, work = max(self._due_s[name] - self._clock_s(), 0.0), self.works_s[name]
        return f"cannot be done in time: {duration_text(work)} alone, {duration_text(left)} left"

    def spare_s(self, name: str) -> float:
        """In which time a job must start to be done by its deadline; below 0: it cannot be."""
        return self._due_s.get(name, math.inf) - self.works_s.get(name, 0.0) - self._clock_s()

    def _needed(self, name: str) -> float:
        """The speed at which a job that starts now is done in time; 0: none is needed or enough."""
        left_s = self._due_s.get(name, math.inf) - self._clock_s()
        # In whole percents, so that a plan holds for a while.
        speed = math.ceil(100 * self.works_s.get(name, 0.0) / max(left_s, 1e-9)) / 100
        return speed if speed <= 1 else 0.0

    def look(self) -> QueueLook:
        """Where it stands; launches that are over are accounted for.

        Raises:
            OSError: the record cannot be written.
        """
        views: list[LaunchView] = []
        for launch_id in self._record.launches:
            try:
                folder = find_folder(self._root, launch_id)
                if (
                    supervisor := self._supervisors.get(launch_id)
                ) and supervisor.poll() is not None:
                    # It ended before it began: its jobs are lost, and are not started later.
                    close_unclaimed(folder)
                launch = see(folder)
            except InputError:
                # It was noted and never made, or removed since.
                self._keep(replace(self._record, launches=self._others(launch_id)))
                continue
            if launch.status.over:
                self._check_gpu(launch)
                self._keep(account_for(self._record, launch, Counter(self.names)))
            else:
                views.append(launch)
        left = waiting(self.names, self._record, views)
        return QueueLook(record=self._record, launches=tuple(views), waiting=left)

    def act(self, look: QueueLook) -> bool:
        """Start, join or end what is to be next; whether more may be to do at once.

        Raises:
            AdvisorError: what is needed for advice cannot be read.
            OSError: a launch cannot be started.
        """
        self._hold_to_deadlines(look)
        plan: Sequence[_Move] = () if self.stopping else self._planned(look)
        is_changing = any(launch.joining or not launch.has_room for launch in look.launches)
        only_servers = not (self.stopping or is_changing) and self._only_servers(look, plan)
        if only_servers:
            self._keep(replace(self._record, servers_ended=True))
        if self.stopping or only_servers:
            for launch in look.launches:
                self._folder(launch).ask_stop()
            return False
        for card, names, split in plan:
            if there := _on(card, look):
                self._join(card, there, names[0], split.seats[-1])
            else:
                self._start(card, self._options(card, names, split), look)
        return bool(plan)

    def done(self, look: QueueLook) -> bool:
        """Whether every batch job has come to its end, and nothing runs."""
        return not look.launches and all(map(self.is_server, look.waiting))

    def finish(self, look: QueueLook) -> None:
        """Where all ended well, nothing is kept."""
        if self.done(look) and not look.record.failed:
            self._file.remove()

    def first_sets(self) -> Iterator[tuple[QueueCard, tuple[LaunchSet, ...]]]:
        """What starts at once on GPUs that are empty, in each way that is tried; starts nothing."""
        self._hold_to_deadlines(look := self.look())
        yield from (
            (card, self._options(card, names, split))
            for card, names, split in self._planned(look)
            if not _on(card, look)
        )

    @property
    def _root(self):
        return self._settings.home / "launches"

    def _folder(self, launch: LaunchView) -> LaunchFolder:
        return LaunchFolder(self._root / launch.launch_id)

    def _others(self, launch_id: str) -> tuple[str, ...]:
        return tuple(name for name in self._record.launches if name != launch_id)

    def _check_gpu(self, launch: LaunchView) -> None:
        """Take note of a launch that never ran because of its GPU, which no other job can use.

        Raises:
            AdvisorError: as its supervisor met it.
        """
        status = launch.status
        if status.code in _OF_GPU and status.overlap_s == 0:
            self._keep(replace(self._record, launches=self._others(launch.launch_id)))
            raise _OF_GPU[status.code](
                f"GPU {launch.gpu} cannot be used: {status.cause}",
                fix="mend that, then the same command goes on; what runs elsewhere runs on",
            )

    def _keep(self, record: QueueRecord) -> None:
        self._file.write(record)
        self._record = record

    def _spawn(self, folder: LaunchFolder) -> None:
        self._supervisors[folder.launch_id] = spawn_supervisor(folder, self._settings, SUPERVISOR)

    def _hold_to_deadlines(self, look: QueueLook) -> None:
        """Give starting and running jobs the minimum speed that meets their deadlines."""
        now = {name: self._needed(name) for name in look.waiting if name in self._due_s}
        if (least := self._least | now) != self._least:
            self._least, self.cards = (
                least,
                tuple(card.needing(least) for card in self._requested_cards),
            )

    def _planned(self, look: QueueLook) -> Sequence[_Move]:
        """What starts on each empty GPU, and what joins on others.

        Servers never end, so where only servers would run, batch jobs go first.
        """
        batch = [name for name in look.waiting if not self.is_server(name)]
        plan = [*self._moves(look, batch if look.record.servers_ended else look.waiting)]
        if self._only_servers(look, plan):
            plan = [*self._moves(look, batch)]
        due = [*filter(self._needed, batch)]
        # Jobs with a deadline first: a job that joins meanwhile would keep their GPU taken.
        left = Counter(due) - Counter(name for _, names, _ in plan for name in names)
        return [*self._moves(look, due)] if left else plan

    def _moves(self, look: QueueLook, left: Sequence[str]) -> Iterator[_Move]:
        alone, sequential = must_be_alone(look.record)
        empty = [card for card in self.cards if not _on(card, look)]
        plan = self._to_the_end([name for name in left if name not in {*alone, *sequential}])
        starts = {
            card: planned_set[1:]
            for card, planned_set in zip(empty, plan, strict=False)
            if planned_set[2]
        }
        yield from ((card, names, split) for card, (names, split) in starts.items() if split)
        # Two of a plan wait for each other: neither goes with anyone else. They wait for no job
        # that may run on for any time, as its work is not known, or it has done more.
        is_awaited = any(
            self._left_s(job) > 0 for launch in look.launches for job in launch.running
        )
        taken = (
            names
            for n, (_, names, split) in enumerate(plan)
            if split and (n < len(empty) or (is_awaited and len(names) > 1))
        )
        rest = [*(Counter(left) - Counter(itertools.chain(*taken))).elements()]
        empty = [card for card in empty if card not in starts]
        light = next((names for _, names, split in plan if not split), left)
        open_cards = [
            self._open(card, look, {*rest} & {*(light if card in empty else rest)} - {*alone})
            for card in self.cards
            if card not in starts
        ]
        for card, names, split in planned(
            tuple(card for card in open_cards if card.able), tuple(rest)
        ):
            yield card, names, split
            empty = [other for other in empty if other is not card]
            for name in names:
                rest.remove(name)
        # Those of which nothing is known, or that others went down with, come last.
        rest.sort(
            key=lambda n: (self.is_server(n), -self._needed(n), n not in sequential),
        )
        yield from (
            (card, (name,), Split((WHOLE,))) for card, name in zip(empty, rest, strict=False)
        )

    def _to_the_end(self, names: Sequence[str]) -> Sequence[_Planned]:
        """The plan of jobs beside no server; a job of unknown work has that of most others."""
        card, works_s = self.cards[0], self.works_s
        typical_s = median(works_s.values()) if works_s else 1.0
        jobs = tuple((n, works_s.get(n, typical_s)) for n in names if n in card.profiles)
        if (
            len({other.wanted.gpu_model for other in self.cards}) > 1
            or any(map(self.is_server, self.names))
            or not (card.inputs and jobs)
        ):
            return ()
        plan = _planned_to_the_end(card, card.inputs, jobs, len(self.cards))
        return sorted(plan, key=lambda planned_set: -max(map(self._needed, planned_set[1])))

    def _open(self, card: QueueCard, look: QueueLook, able: Collection[str]) -> OpenCard:
        """A GPU with the waiting jobs that may run there beside others; none: none can."""
        alone, sequential = must_be_alone(look.record)
        profiled = frozenset(name for name in able if name in card.profiles)
        if (launch := _on(card, look)) is None:
            return OpenCard(card=card, able=profiled - {*sequential}, brief=frozenset())
        names = tuple(job.part.job.name for job in launch.running)
        if not launch.has_room or {*names} & {*alone} or not card.expected(names, launch.split):
            return OpenCard(card=card, able=frozenset())
        refused = launch.refused | {n for i, n in self._refused if i == launch.launch_id}
        there = Running(split=launch.split, cap_percent=WHOLE, may_be_low=True)
        works_s, left_s = self.works_s, max(map(self._left_s, launch.running))
        return OpenCard(
            card=card,
            able=profiled - refused,
            running=names,
            there=there,
            brief=frozenset(name for name in profiled if works_s.get(name, math.inf) <= left_s),
        )

    def _left_s(self, job: LaunchedJob) -> float:
        """What is left of the work of a job, 0 or less where that is not known."""
        done_s = job.status.steps / (job.part.solo_rate or math.inf)
        return self.works_s.get(job.status.job, 0.0) - done_s

    def _only_servers(self, look: QueueLook, plan: Sequence[_Move]) -> bool:
        """Whether no batch job runs, nor starts by a plan."""
        running = [job.part.job.name for launch in look.launches for job in launch.running]
        return all(map(self.is_server, itertools.chain(running, *(names for _, names, _ in plan))))

    def _options(
        self, card: QueueCard, names: Sequence[str], split: Split
    ) -> tuple[LaunchSet, ...]:
        """Jobs as they are planned; where all may be started again, in other ways to try, too."""
        jobs, splits = [self._jobs[name] for name in names], [split]
        tries = card.wanted.request.tries
        if card.inputs and tries > 1 < len(jobs) and all(job.restartable for job in jobs):
            profiles = [card.profiles[name] for name in names]
            decision = decider_of(card.inputs, card.request.of(profiles))(profiles, None)
            if decision and decision.choice:
                tried = options_to_try(decision, tries)
                splits = [*dict.fromkeys((split, *(option.prediction.split for option in tried)))]
        return tuple(
            card.launch_set(jobs, chosen_split, self._settings) for chosen_split in splits[:tries]
        )

    def _start(self, card: QueueCard, options: Sequence[LaunchSet], look: QueueLook) -> None:
        spec = LaunchSpec(
            launch_id=new_launch_id(),
            gpu=card.gpu.uuid,
            pairs=tuple(
                replace(option, parts=tuple(map(self._limited, option.parts))) for option in options
            ),
            hang_s=card.wanted.request.hang_s,
            try_s=TRY_S if len(options) > 1 else None,
            # The jobs of the launch before it have ended, and its GPU is free soon.
            wait_s=60.0 if any(launch.gpu == card.gpu.uuid for launch in look.launches) else 0.0,
            asked_by=card.wanted.asked_by,
        )
        # Noted first: an unknown launch would be started again.
        self._keep(replace(self._record, launches=(*self._record.launches, spec.launch_id)))
        self._spawn(create_folder(self._root, spec))

    def _limited(self, part: LaunchPart) -> LaunchPart:
        name = part.job.name
        limit_s = None if self.is_server(name) else self._limits_s.get(name)
        return replace(part, time_limit_s=limit_s)

    def _join(
        self, card: QueueCard, launch: LaunchView, name: str, seat: tuple[float, bool]
    ) -> None:
        folder, (share, low) = self._folder(launch), seat
        try:
            request = make_join(folder, name, share, card.wanted, self._settings, is_low=low)
        except AdvisorError:
            # It has ended meanwhile, or cannot at that share: another look says more.
            self._refused.add((launch.launch_id, name))
            return
        made = request.pairs[0]
        *beside, part = made.parts
        parts = (*beside, self._limited(card.held_to(part)))
        with suppress(OSError):
            ask_join(folder, replace(request, pairs=(replace(made, parts=parts),)))


def _on(card: QueueCard, look: QueueLook) -> LaunchView | None:
    """The launch with jobs on a GPU; one whose jobs have ended is about to let go of it."""
    return next(
        (
            launch
            for launch in look.launches
            if launch.gpu == card.gpu.uuid and not launch.is_ending
        ),
        None,
    )
