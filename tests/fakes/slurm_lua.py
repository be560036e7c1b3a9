"""The Lua plugin of Slurm, run by a plain Lua interpreter with a stand-in for Slurm itself."""

import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

API = Path(__file__).parents[2] / "api/slurm"
# Slurm links one of these, whichever the distribution has.
INTERPRETERS = [name for name in ("lua5.1", "lua5.3", "lua5.4") if shutil.which(name)]
BATCH = {"tres_per_node": "gres:gpu:1", "script": "#!/bin/sh", "comment": "advisor:job=a"}

_DRIVER = """
local said = ""
slurm = { SUCCESS = 0, ERROR = -1, NO_VAL = 4294967294 }
function slurm.log_user(form, ...) said = string.format(form, ...) end
assert(loadfile(ETC .. "/job_submit.lua"))()
for number, job in ipairs(JOBS) do
  said = ""
  local code = RECORDED and slurm_job_modify(job, { comment = RECORDED }, {}, USER)
  io.write("code=", code or slurm_job_submit(job, {}, 0), "\\30said=", said)
  for name, value in pairs(job) do io.write("\\30", name, "=", value) end
  io.write("\\31")
end
"""


FACTS = {"user": "64030", "wait_s": "60", "books": "ok", "default": "gpus",
         "partition.gpus": "ok types=h100"}  # fmt: skip
"""What `advisor slurm match` tells the plugin of a site where all is well."""


@dataclass(frozen=True)
class Plugin:
    """The installed plugin in `etc`."""

    interpreter: str
    etc: Path

    def tell(self, facts: Mapping[str, str] = {}, ago_s: float = 0) -> None:
        """Write the facts of a site, beside or instead of the usual ones."""
        lines = FACTS | {"written_at": f"{time.time() - ago_s:.0f}"} | dict(facts)
        text = "".join(f"{name} = {value}\n" for name, value in lines.items())
        (self.etc / "facts").write_text(text)

    def submit(self, *jobs: Mapping[str, str | int]) -> list[dict[str, str]]:
        """What becomes of jobs, one after the other: fields, `code` and `said`."""
        return self._run("RECORDED = nil", *jobs)

    def submit_one(self, **fields: str | int) -> dict[str, str]:
        """What becomes of a batch job for one GPU, with these fields beside or instead."""
        return self.submit(BATCH | fields)[0]

    def may_modify(self, recorded: str, user: int, **fields: str) -> bool:
        """Whether a user may change these fields of a job with this comment."""
        return self._run(f"RECORDED = {_in_lua(recorded)}\nUSER = {user}", fields)[0]["code"] == "0"

    def _run(self, before: str, *jobs: Mapping[str, str | int]) -> list[dict[str, str]]:
        tables = ", ".join(
            "{" + ", ".join(f"{name} = {_in_lua(v)}" for name, v in job.items()) + "}"
            for job in jobs
        )
        done = subprocess.run(
            [self.interpreter, "-"],
            input=f"ETC = {_in_lua(str(self.etc))}\nJOBS = {{{tables}}}\n{before}\n{_DRIVER}",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        parts = [job.split("\x1e") for job in done.stdout.split("\x1f")[:-1]]
        return [dict(part.split("=", 1) for part in job) for job in parts]


def _in_lua(value: str | int) -> str:
    """A value as every version of Lua reads it, whatever bytes are in it."""
    if isinstance(value, int):
        return str(value)
    return '"' + "".join(f"\\{byte:03}" for byte in value.encode()) + '"'


def write_settings(etc: Path, address: str, **more: str) -> None:
    """Write `advisor.conf`: this address and other settings."""
    settings = {"address": address, "wait_s": "60", "without_advice": "pass"}
    lines = [f"{name} = {text}\n" for name, text in (settings | more).items()]
    (etc / "advisor/advisor.conf").write_text("".join(lines))


def install(interpreter: str, etc: Path) -> Plugin:
    """The plugin's files where Slurm would have them."""
    (etc / "advisor").mkdir(parents=True)
    shutil.copy(API / "job_submit.lua", etc)
    shutil.copy(API / "advisor.lua", etc / "advisor")
    write_settings(etc, "http://127.0.0.1:1", facts=str(etc / "facts"))
    plugin = Plugin(interpreter, etc)
    plugin.tell()
    return plugin
