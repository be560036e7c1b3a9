"""A server that is killed in the middle of a launch: its own steps, one after the other.

python half_launch.py A B row|folder    prints the id of the launch, then ends as by kill -9
"""

import os
import signal
import sys

from advisor.settings import read_settings
from advisor.wire.launch_request import LaunchRequest
from advisor_advice.launching import make_spec
from advisor_advice.resolved_launch import ResolvedLaunch
from advisor_api.launches.steps import folder_of, new_row, release_gpus
from advisor_data.service.state import open_service_state
from advisor_profiling.testbed.live import find_gpu


def main(job_a: str, job_b: str, last_step: str) -> None:
    settings = read_settings()
    gpu = find_gpu("0")
    asked = LaunchRequest.of(job_a, job_b, split="26/50")
    spec = make_spec(ResolvedLaunch(request=asked, gpu=gpu.uuid, asked_by="killed"), settings)
    home = (settings.home / "id").read_text()
    with open_service_state(settings.database_url, settings.home) as state:
        release_gpus(state, settings, home)
        row = state.add_launch(new_row(spec, gpu, home, ""))
    if last_step == "folder":
        folder_of(row, settings)
    print(row.launch_id, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


main(*sys.argv[1:])
