"""A queue of jobs on the GPUs of one host: who starts and joins where, until all are done."""

import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from advisor.core.gpu import WHOLE, Gpu
from advisor.core.job import Job
from advisor.core.split import ISOLATING, MOST_JOBS, Sharing, Split
from advisor.decide.decision import Decision, Outlook, decide
from advisor.decide.filling import Beside, alone, best_beside
from advisor.decide.limits import Request, is_served
from advisor.decide.options import Running
from advisor.errors import (
    AdvisorError,
    BusyError,
    InputError,
    NoSplitError,
    PartitionError,
    SourceError,
    SurvivorsError,
)
from advisor.launch.folder import (
    LaunchFolder,
    ask_join,
    close_unclaimed,
    create_folder,
    find_folder,
    new_launch_id,
)
from advisor.launch.run_queue import (
    QueueFile,
    QueueRecord,
    SeenLaunch,
    account_for,
    must_be_alone,
    see,
    waiting,
)
from advisor.launch.spec import LaunchPart, LaunchSet, LaunchSpec
from advisor.launch.start import spawn_supervisor
from advisor.predict.predictions import Prediction, Predictor
from advisor.predict.profiles import Profile
from advisor.predict.sets import AnyWay, SetPredictor
from advisor.settings import Settings
from advisor.validity.safe_counts import CheckedCounts
from advisor_advice import forecasting
from advisor_advice.answers import with_known_idle
from advisor_advice.conditions import NOTHING, Conditions, read_conditions
from advisor_advice.forecasting import criteria_of
from advisor_advice.launching import ResolvedLaunch, make_join
from advisor_advice.profiles import checked_on, find_profiles
from advisor_models.registry import Registry
from advisor_profiling import SUPERVISOR

_Key = tuple[tuple[str, ...], Running | None]


@dataclass(frozen=True, eq=False, kw_only=True)
class FillAdvice:
    """Advice on one GPU.

    Attributes:
        profiles: By name of job.
        lacking: Names of jobs that can only run alone, and why.
    """

    profiles: Mapping[str, Profile]
    lacking: Mapping[str, str]
    predictor: Predictor = field(default_factory=SetPredictor)
    request: Request = field(default_factory=Request)
    conditions: Conditions = NOTHING
    checked: CheckedCounts | None = None
    _asked: dict[_Key, Decision | None] = field(default_factory=dict[_Key, Decision | None])

    def first_set(
        self, waiting: Sequence[str], spare: int
    ) -> tuple[tuple[str, ...], Prediction] | None:
        """Those that start on an empty GPU, servers first, and how; None: none of them is known.

        `spare` jobs are left for GPUs that are empty, too.
        """
        rest = [self.profiles[name] for name in waiting if name in self.profiles]
        rest.sort(key=lambda profile: not is_served(profile))
        if not rest:
            return None
        if not spare and 1 < len(rest) <= MOST_JOBS:
            decision = self._ask(rest, None)
            if decision and decision.choice and decision.choice.sharing not in ISOLATING:
                return tuple(p.job for p in rest), decision.choice.prediction
        there = [rest.pop(0)]
        now = self._alone(there[0], WHOLE)
        while len(there) < MOST_JOBS:
            servers = [profile for profile in rest if is_served(profile)]
            if not servers and len(rest) <= spare:
                break
            found = best_beside(there, now, servers or rest, self._ask)
            if found is None and servers:
                # It waits for another GPU.
                batch = [profile for profile in rest if not is_served(profile)]
                found = best_beside(there, now, batch, self._ask)
            if found is None:
                break
            there.append(found.profile)
            rest.remove(found.profile)
            now = found.prediction
        return tuple(profile.job for profile in there), now

    def joining(
        self, running: Sequence[str], there: Running, waiting: Iterable[str]
    ) -> Beside | None:
        """The waiting job that is to join those that run; None: all better wait."""
        now = self.expected(running, there.shares, there.sharing)
        if now is None:
            return None
        profiles = [self.profiles[name] for name in running]
        known = [self.profiles[name] for name in waiting if name in self.profiles]
        return best_beside(profiles, now, known, self._ask, there)

    def expected(
        self, jobs: Sequence[str], shares: Sequence[float], sharing: Sharing
    ) -> Prediction | None:
        """What jobs do together; None: one of them has no profile, or none at its share."""
        if not jobs or any(job not in self.profiles for job in jobs):
            return None
        profiles = [self.profiles[job] for job in jobs]
        try:
            if len(jobs) == 1:
                return self._alone(profiles[0], shares[0])
            predictor, profiles = self.conditions.applied(self.predictor, profiles)
            return predictor.predict(profiles, [Split(tuple(shares), sharing)])[0]
        except InputError:
            return None

    def held_to(self, part: LaunchPart) -> LaunchPart:
        """The job with what is asked for it: it is watched, and who is let join is held to it."""
        profile = self.profiles.get(part.job.name)
        if profile is None:
            return part
        least = self.request.min_speed.get(profile.job)
        return replace(part, min_speed=least, max_p99_ms=self.request.longest_p99_ms(profile))

    def _alone(self, profile: Profile, share_percent: float) -> Prediction:
        _, (own,) = self.conditions.applied(self.predictor, [profile])
        return alone(own, share_percent)

    def _ask(self, profiles: Sequence[Profile], running: Running | None) -> Decision | None:
        key = tuple(profile.job for profile in profiles), running
        if key not in self._asked:
            self._asked[key] = self._decided(profiles, running)
        return self._asked[key]

    def _decided(self, asked: Sequence[Profile], running: Running | None) -> Decision | None:
        predictor, profiles = self.conditions.applied(self.predictor, asked)
        splits = self.conditions.splits_of(profiles)
        try:
            outlook = Outlook(profiles, predictor, self.checked, splits)
            return decide(outlook, self.request.of(profiles), running=running)
        except NoSplitError:
            return None


def read_advice(jobs: Sequence[Job], wanted: ResolvedLaunch, settings: Settings) -> FillAdvice:
    """What is known of jobs on the card that is wanted; a job without a profile runs alone.

    Raises:
        InputError: a limit is for none of the jobs.
        ModelError: there is no model, or it is damaged.
        StoreError: the store cannot be read.
    """
    known: list[Job] = []
    lacking: dict[str, str] = {}
    for job in {job.name: job for job in jobs}.values():
        try:
            find_profiles([job.name], settings, wanted.gpu_model, wanted.profiles)
            known.append(job)
        except InputError as error:
            lacking[job.name] = error.what
    if not known:
        return FillAdvice(profiles={}, lacking=lacking)
    profile_set, request = criteria_of(known, wanted, settings)
    model = Registry(settings.home / "models").open_champion()
    filled, _ = with_known_idle(profile_set, model.manifest.fill)
    return FillAdvice(
        profiles={profile.job: profile for profile in filled.profiles},
        lacking=lacking,
        predictor=AnyWay(model),
        request=request,
        conditions=read_conditions(settings, model, filled.profiles, wanted.gpu_uuid, any_of=True),
        checked=checked_on(profile_set, settings),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCard:
    """A GPU of the queue: what launches on it are asked for with, and what is known of jobs."""

    wanted: ResolvedLaunch
    advice: FillAdvice

    @property
    def gpu(self) -> Gpu:
        """The card; a queue runs on none that was not seen."""
        assert self.wanted.card is not None
        return self.wanted.card

    def launch_set(self, jobs: Sequence[Job], split: Split, settings: Settings) -> LaunchSet:
        """Jobs at a split, with what to expect of them and what they are held to.

        Raises:
            StoreError: what the check of the GPU model found cannot be read.
        """
        parts = tuple(self.advice.held_to(LaunchPart(job=job)) for job in jobs)
        # Nobody has a limit, but who joins may need one.
        split = Split(split.shares) if split.sharing == "uncapped" else split
        made = LaunchSet(split=split, parts=parts, open_percent=WHOLE)
        return forecasting.with_forecast(made, self.wanted, settings)[0]


_WAIT_S = 60.0
"""A launch may wait for the GPU of the one before it, whose jobs have ended, for so long."""

_OF_GPU = {error.code: error for error in (BusyError, PartitionError, SourceError, SurvivorsError)}
"""What goes wrong with a GPU, whatever job is started on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLook:
    """A queue at one moment.

    Attributes:
        launches: Those that are under way.
        waiting: Names of the jobs that wait, in the order of the queue.
    """

    record: QueueRecord
    launches: tuple[SeenLaunch, ...]
    waiting: tuple[str, ...]

    @property
    def over(self) -> bool:
        """Nothing of it runs."""
        return not self.launches


class QueueRun:
    """One queue, of which this process has the file.

    Args:
        jobs: As their files are now; one that is wanted several times so often.
        cards: GPUs on which jobs may be started.
        limits_s: How long jobs may run, by their names; servers run until they are ended.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        cards: Sequence[QueueCard],
        file: QueueFile,
        settings: Settings,
        limits_s: Mapping[str, float] | None = None,
    ) -> None:
        self._limits_s = limits_s or {}
        self.cards, self._file, self._settings = tuple(cards), file, settings
        self.names = tuple(job.name for job in jobs)
        self._jobs: Mapping[str, Job] = {job.name: job for job in jobs}
        self._record = file.read().to_go_on()
        self._refused: set[tuple[str, str]] = set()
        self._supervisors: dict[str, subprocess.Popen[bytes]] = {}
        self.stopping = False

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

    def look(self) -> QueueLook:
        """Where it stands; launches that are over are accounted for.

        Raises:
            OSError: the record cannot be written.
        """
        seen: list[SeenLaunch] = []
        for launch_id in self._record.launches:
            try:
                folder = find_folder(self._root, launch_id)
                if (own := self._supervisors.get(launch_id)) and own.poll() is not None:
                    # It ended before it began: its jobs are lost, and nobody starts them later.
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
                seen.append(launch)
        left = waiting(self.names, self._record, seen)
        return QueueLook(record=self._record, launches=tuple(seen), waiting=left)

    def act(self, look: QueueLook) -> bool:
        """Start, join or end what is to be next; whether more may be to do at once.

        Raises:
            AdvisorError: what is needed for advice cannot be read.
            OSError: a launch cannot be started.
        """
        left = [n for n in look.waiting if not (look.record.servers_ended and self.is_server(n))]
        only_servers = not self.stopping and self._only_servers(look, left)
        if only_servers:
            self._keep(replace(self._record, servers_ended=True))
        if self.stopping or only_servers:
            for launch in look.launches:
                self._folder(launch).ask_stop()
            return False
        for card in self.cards:
            here = _on(card, look)
            if not here and left and self._start(card, left, look):
                return True
            if here and left and self._join(card, here[0], left):
                return True
        return False

    def done(self, look: QueueLook) -> bool:
        """Whether every batch job has come to its end, and nothing runs."""
        return look.over and all(map(self.is_server, look.waiting))

    def finish(self, look: QueueLook) -> bool:
        """Whether all ended well; nothing is kept then."""
        well = self.done(look) and not look.record.failed
        if well:
            self._file.remove()
        return well

    def first_sets(self) -> Iterator[tuple[QueueCard, LaunchSet]]:
        """What starts at once on GPUs that are empty, without starting it."""
        look = self.look()
        left = list(look.waiting)
        empty = [card for card in self.cards if not _on(card, look)]
        for spare, card in zip(range(len(empty) - 1, -1, -1), empty, strict=True):
            if left and (made := self._set(card, left, look, spare)):
                for part in made.parts:
                    left.remove(part.job.name)
                yield card, made

    @property
    def _root(self):
        return self._settings.home / "launches"

    def _folder(self, launch: SeenLaunch) -> LaunchFolder:
        return LaunchFolder(self._root / launch.launch_id)

    def _others(self, launch_id: str) -> tuple[str, ...]:
        return tuple(name for name in self._record.launches if name != launch_id)

    def _check_gpu(self, launch: SeenLaunch) -> None:
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

    def _only_servers(self, look: QueueLook, left: Sequence[str]) -> bool:
        """Whether what runs are servers alone, and nobody who waits can run beside them."""
        running = [job for launch in look.launches for job in launch.running]
        if not running or not all(self.is_server(job.part.job.name) for job in running):
            return False
        if any(launch.joining or not launch.has_room for launch in look.launches):
            return False
        batch = [name for name in left if not self.is_server(name)]
        return not any(
            self._beside(card, there[0], batch) is not None if there else bool(batch)
            for card, there in [(card, _on(card, look)) for card in self.cards]
        )

    def _start(self, card: QueueCard, left: Sequence[str], look: QueueLook) -> bool:
        empty = [other for other in self.cards if not _on(other, look)]
        made = self._set(card, left, look, spare=len(empty) - 1)
        if made is None:
            return False
        spec = LaunchSpec(
            launch_id=new_launch_id(),
            gpu=card.gpu.uuid,
            pairs=(replace(made, parts=tuple(map(self._limited, made.parts))),),
            hang_s=card.wanted.request.hang_s,
            wait_s=_WAIT_S if any(one.gpu == card.gpu.uuid for one in look.launches) else 0.0,
            asked_by=card.wanted.asked_by,
        )
        # Noted first: a launch that nobody knows of would be started again.
        self._keep(replace(self._record, launches=(*self._record.launches, spec.launch_id)))
        self._spawn(create_folder(self._root, spec))
        return True

    def _limited(self, part: LaunchPart) -> LaunchPart:
        """The same with its time limit."""
        name = part.job.name
        limit_s = None if self.is_server(name) else self._limits_s.get(name)
        return replace(part, time_limit_s=limit_s)

    def _set(
        self, card: QueueCard, left: Sequence[str], look: QueueLook, spare: int
    ) -> LaunchSet | None:
        """What an empty GPU is to run; None: what waits, waits for another one."""
        alone, one_by_one = must_be_alone(look.record)
        known = [n for n in left if n not in alone and n not in one_by_one]
        found = card.advice.first_set(known, spare)
        if found is not None:
            names, prediction = found
            return card.launch_set([self._jobs[n] for n in names], prediction.split, self._settings)
        # Those of which nothing is known, or that others went down with, come last.
        last = sorted(left, key=lambda n: (self.is_server(n), n not in one_by_one))
        if not last:
            return None
        return card.launch_set([self._jobs[last[0]]], Split((WHOLE,)), self._settings)

    def _beside(self, card: QueueCard, launch: SeenLaunch, left: Sequence[str]):
        """Who is to join a launch, if anybody."""
        alone, _ = must_be_alone(self._record)
        running = launch.running
        names = [job.part.job.name for job in running]
        if not launch.has_room or any(name in alone for name in names):
            return None
        shares = tuple(job.status.share_percent for job in running)
        there = Running(shares=shares, sharing=launch.status.sharing, cap_percent=WHOLE)
        refused = launch.refused | {n for i, n in self._refused if i == launch.launch_id}
        able = [name for name in left if name not in alone and name not in refused]
        return card.advice.joining(names, there, able)

    def _join(self, card: QueueCard, launch: SeenLaunch, left: Sequence[str]) -> bool:
        found = self._beside(card, launch, left)
        if found is None:
            return False
        name, share = found.profile.job, found.prediction.split.shares[-1]
        folder = self._folder(launch)
        try:
            request = make_join(folder, name, share, card.wanted, self._settings)
        except AdvisorError:
            # It has ended meanwhile, or cannot at that share: another look says more.
            self._refused.add((launch.launch_id, name))
            return False
        made = request.pairs[0]
        *beside, part = made.parts
        parts = (*beside, self._limited(card.advice.held_to(part)))
        with suppress(OSError):
            ask_join(folder, replace(request, pairs=(replace(made, parts=parts),)))
        return True


def _on(card: QueueCard, look: QueueLook) -> list[SeenLaunch]:
    """Launches with jobs on a GPU; one whose jobs have ended is about to let go of it."""
    return [one for one in look.launches if one.gpu == card.gpu.uuid and not one.is_ending]
