"""What the pages show, typed in a bare Debian: the smallest, Python from apt, the wheel by pip.

    .venv/bin/python docs/measurements/bare_walk.py --root /tmp/bare

Needs root, debootstrap and a network. The wheel and what it needs are installed by root; the
commands run as a user who may not write there, with the files, users and processes of the bare
system, in a folder with the jobs that pages speak of. Those that need a GPU, a cluster or a service
are left out, as tests/fakes/page_blocks.py says. Takes ten minutes.
"""

import argparse
import itertools
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests/fakes")]

from page_blocks import blocks, commands, pages, why_not_run  # noqa: E402
from page_reader import write_reader  # noqa: E402

USER, HOME = 1000, "home/reader"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
PATH = "/opt/advisor/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CIRCUMSTANCES = {
    "as it comes, POSIX locale": {},
    "a locale of ASCII alone": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "a terminal of 40 by 10": {"COLUMNS": "40", "LINES": "10", "TERM": "dumb"},
    "as root": {},
}


def main() -> None:
    """Print how many commands failed under each circumstance, and which."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--root", type=Path, required=True, help="of the bare system; is made")
    options.add_argument("--extras", default="train,serve,client,kubernetes,parquet")
    asked = options.parse_args()
    begun = time.monotonic()
    _make(asked.root, asked.extras)
    print(f"made in {time.monotonic() - begun:.0f} s")
    for name, variables in CIRCUMSTANCES.items():
        begun, failed, shown = time.monotonic(), list[str](), _shown()
        user = 0 if name == "as root" else USER
        _reader(asked.root, user)
        for place, command in shown:
            done = _inside(asked.root, f"cd reader; {command}", user, variables)
            if done.returncode or "Traceback" in done.stderr:
                failed.append(f"  {place} {done.returncode}: {command}\n    {_last(done.stderr)}")
        took_s = time.monotonic() - begun
        print(f"{name}: {len(shown)} commands, {len(failed)} failed, {took_s:.0f} s")
        print("\n".join(failed), flush=True)


def _make(root: Path, extras: str) -> None:
    """The bare system, unless it is there; the wheel of this checkout in it."""
    if not (root / "opt/advisor").exists():
        subprocess.run(["debootstrap", "--variant=minbase", "bookworm", root], check=True)
        shutil.copy("/etc/resolv.conf", root / "etc")
        apt = "DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends"
        user = f"useradd -u {USER} -d /{HOME} reader"
        _must(root, f"{apt} ca-certificates python3 python3-venv && {user}")
        _must(root, "python3 -m venv /opt/advisor")
    shutil.copy(CERTIFICATES, f"{root}/{CERTIFICATES}")  # whom this host trusts, for pip
    build = ["-m", "build", "--no-isolation", "--wheel", "--outdir", root / "tmp", ROOT]
    subprocess.run([sys.executable, *build], check=True, capture_output=True)
    wheel = max(root.glob("tmp/*.whl"), key=lambda file: file.stat().st_mtime)
    pip = f"PIP_CERT={CERTIFICATES} pip install -q --force-reinstall"
    _must(root, f"{pip} '/tmp/{wheel.name}[{extras}]'")


def _must(root: Path, command: str, user: int = 0) -> None:
    done = _inside(root, command, user)
    if done.returncode:
        sys.exit(f"{command}: {done.stderr}")


def _inside(
    root: Path, command: str, user: int = 0, variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A command in namespaces of its own, with nothing of this environment."""
    (root / HOME).mkdir(exist_ok=True, parents=True)
    given = {"PATH": PATH, "HOME": f"/{HOME}", **(variables or {})}
    words = " ".join(f"{name}={value}" for name, value in given.items())
    prepare = f"mount -t proc proc {root}/proc; mount --bind /dev {root}/dev; hostname bare"
    become = f"env -i {words} chroot --userspec={user}:{user} {root}"
    enter = f'{prepare}; exec {become} bash -c "cd; $0"'
    return subprocess.run(
        ["unshare", "--mount", "--pid", "--uts", "--fork", "bash", "-c", enter, command],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip


def _reader(root: Path, user: int) -> None:
    """His folder in the bare system, an empty home otherwise."""
    shutil.rmtree(root / HOME, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:

        def write_job(name: str) -> Path:
            progress = {"kind": "counter", "unit": "steps"}
            file = Path(scratch, f"{name}.yaml")
            file.write_text(json.dumps({"command": ["sleep", "60"], "progress": progress}))
            return file

        write_reader(root / HOME / "reader", write_job)
    subprocess.run(["chown", "-R", f"{user}:{user}", root / HOME], check=True)
    _must(root, "cd reader; advisor data import mine.jsonl", user)


def _shown() -> list[tuple[str, str]]:
    """Where each stands, once each; without the pipe to a program that is not there."""
    found = dict[str, str]()
    for block in itertools.chain(*map(blocks, pages())):
        for line, command in commands(block):
            if why_not_run(command) is None:
                plain = re.sub(r"\.venv/bin/|\s*\|\s*$", "", command)
                found.setdefault(re.sub(r"\s+#.*", "", plain), f"{block.page}:{line}")
    return [(place, command) for command, place in found.items()]


def _last(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1][:150]


if __name__ == "__main__":
    main()
