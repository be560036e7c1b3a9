"""Functions of ours that a question passes through, from Python's door to the answer.

    .venv/bin/python docs/measurements/path.py [--list] [JOB ...]

Of a second, equal question but for its floor, so that what is read or imported once is no part of
it: distinct functions, calls, and modules. `--list` names the functions. Another checkout: put its
folders first in PYTHONPATH.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import advisor

HERE = Path(advisor.__file__).parents[1]


def main() -> None:
    """One line, and the functions with `--list`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("jobs", nargs="*", default=["bert-train", "vit-infer"])
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    advisor.recommend(*options.jobs)
    calls: Counter[tuple[str, str]] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        code, path = frame.f_code, Path(frame.f_code.co_filename)
        named = not code.co_qualname.endswith(">")  # comprehensions and lambdas are part of others
        if event == "call" and named and HERE in path.parents and ".venv" not in path.parts:
            calls[str(path.relative_to(HERE)), code.co_qualname] += 1

    sys.setprofile(note)
    try:
        advisor.recommend(*options.jobs, min_speed=0.35)
    finally:
        sys.setprofile(None)
    modules = {module for module, _ in calls}
    print(f"{len(calls)} functions of {len(modules)} modules, {calls.total()} calls")
    for (module, name), count in sorted(calls.items()) if options.list else ():
        print(f"{count:6} {module} {name}")


if __name__ == "__main__":
    main()
