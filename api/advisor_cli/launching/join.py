"""`advisor launch --join`: one more job beside those of a launch that runs."""

import time
from collections.abc import Iterator, Sequence

from advisor.core.wording import listed
from advisor.errors import AdvisorError, InputError
from advisor.launch.folder import (
    JoinAnswer,
    JoinRequest,
    LaunchFolder,
    ask_join,
    find_folder,
    last_answer,
    withdraw,
)
from advisor.settings import Settings
from advisor_advice.launching import make_join
from advisor_advice.resolved_launch import ResolvedLaunch
from advisor_cli.shared.say import as_json_text, say

_LOOK_S = 0.2


def join(
    launch_id: str,
    jobs: Sequence[str],
    share_percent: float | None,
    wanted: ResolvedLaunch,
    settings: Settings,
    *,
    as_json: bool,
) -> int:
    """Ask the supervisor of a launch, and wait for its answer; the exit code of the command.

    Raises:
        InputError: more than one job, or a launch that is not running.
        NoSplitError: no share for the job is worth it, or keeps the limits.
    """
    if len(jobs) != 1:
        raise InputError(
            f"{len(jobs)} jobs cannot join {launch_id} at once", fix="name one job; then the next"
        )
    folder = find_folder(settings.home / "launches", launch_id)
    request = make_join(folder, jobs[0], share_percent, wanted, settings)
    for text in () if as_json else (*_expected(request), *(f"! {note}" for note in request.notes)):
        say(text, err=True)
    said = _answer(folder, request)
    say(as_json_text(said) if as_json else _text(launch_id, said, request.share_percent))
    codes = {error.code: error.exit_code for error in AdvisorError.__subclasses__()}
    return 0 if said.code is None else codes.get(said.code, AdvisorError.exit_code)


def _expected(request: JoinRequest) -> Iterator[str]:
    """What is predicted of all, before anybody is asked."""
    if (forecast := request.forecast) is None:
        return
    names = (*request.beside, request.part.job.name)
    speeds = [
        f"{name} at {100 * job.rate.value / job.solo_rate:.0f} % of its speed"
        for name, job in zip(names, forecast.jobs, strict=True)
    ]
    yield (
        f"expected with {request.share_percent:g} % for {names[-1]}: {listed(speeds)}, "
        f"{forecast.power_w.value:.0f} W"
    )


def _answer(folder: LaunchFolder, request: JoinRequest) -> JoinAnswer:
    """What the supervisor says; Ctrl-C withdraws the request."""
    name = ask_join(folder, request)
    try:
        while (said := last_answer(folder, name, request.part.job.name)) is None:
            time.sleep(_LOOK_S)
        return said
    except KeyboardInterrupt:
        withdraw(folder, name)
        raise


def _text(launch_id: str, said: JoinAnswer, share_percent: float) -> str:
    if said.code is not None:
        return f"{said.job} did not join {launch_id}, which goes on as it was: {said.cause}"
    memory = "no limit" if said.memory_limit_mib is None else f"{said.memory_limit_mib:,} MiB"
    units = "" if said.units_granted is None else f" ({said.units_granted} units, memory {memory})"
    return f"{said.job} joined {launch_id} with {share_percent:g} %{units} at {said.joined_at}"
