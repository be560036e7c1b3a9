"""The Lua plugin of Slurm, run by a plain Lua interpreter with a stand-in for Slurm itself."""

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

API = Path(__file__).parents[2] / "api/slurm"
# Slurm links one of these, whichever the distribution has.
INTERPRETERS = [name for name in ("lua5.1", "lua5.3", "lua5.4") if shutil.which(name)]
BATCH = {"tres_per_node": "gres:gpu:1", "script": "#!/bin/sh", "comment": "advisor:job=a,with=b"}

_DRIVER = """
local said = ""
slurm = { SUCCESS = 0, ERROR = -1, NO_VAL = 4294967294 }
function slurm.log_user(form, ...) said = string.format(form, ...) end
assert(loadfile(ETC .. "/job_submit.lua"))()
for number, job in ipairs(JOBS) do
  job.environment = {}
  io.write("code=", slurm_job_submit(job, {}, 0), "\\30said=", said)
  for name, value in pairs(job.environment) do io.write("\\30", name, "=", value) end
  job.environment = nil
  for name, value in pairs(job) do io.write("\\30", name, "=", value) end
  io.write("\\31")
end
"""


@dataclass(frozen=True)
class Plugin:
    """The installed plugin in `etc`."""

    interpreter: str
    etc: Path

    def configure(self, address: str, **more: str) -> None:
        write_settings(self.etc, address, **more)

    def submit(self, *jobs: Mapping[str, str | int]) -> list[dict[str, str]]:
        """What becomes of jobs, one after the other: fields, environment, `code` and `said`."""
        tables = ", ".join(
            "{" + ", ".join(f"{name} = {json.dumps(v)}" for name, v in job.items()) + "}"
            for job in jobs
        )
        text = f"ETC = {json.dumps(str(self.etc))}\nJOBS = {{{tables}}}\n{_DRIVER}"
        parts = [job.split("\x1e") for job in run_lua(self.interpreter, text).split("\x1f")[:-1]]
        return [dict(part.split("=", 1) for part in job) for job in parts]

    def submit_one(self, **fields: str | int) -> dict[str, str]:
        """What becomes of a batch job for one GPU, with these fields beside or instead."""
        return self.submit(BATCH | fields)[0]


def write_settings(etc: Path, address: str, **more: str) -> None:
    """Write `advisor.conf`: this address and other settings."""
    settings = {
        "address": address, "timeout_s": "10", "pause_s": "0", "without_advice": "pass",
        "mps_per_gpu": "100",
    }  # fmt: skip
    lines = [f"{name} = {text}\n" for name, text in (settings | more).items()]
    (etc / "advisor/advisor.conf").write_text("".join(lines))


def run_lua(interpreter: str, text: str) -> str:
    done = subprocess.run(
        [interpreter, "-"],
        input=text,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def install(interpreter: str, etc: Path) -> Plugin:
    """The plugin's files where Slurm would have them."""
    (etc / "advisor").mkdir(parents=True)
    shutil.copy(API / "job_submit.lua", etc)
    for name in ("advisor.lua", "service.lua", "json.lua", "advisor.conf"):
        shutil.copy(API / name, etc / "advisor")
    return Plugin(interpreter, etc)
