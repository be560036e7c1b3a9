"""Runs a Python job until it has made so much progress, and ends it well then.

    python3 docs/measurements/fixed_work.py STEPS SCRIPT [ARGUMENTS...]

For jobs that run until they are stopped and count by `advisor.progress`. It needs the standard
library alone: jobs often have a Python of their own.
"""

import runpy
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

from advisor import progress


class FixedProgress(progress.Progress):
    """Ends its job at so many steps."""

    def report(self, value: float | None, steps: int = 0) -> None:
        super().report(value, steps)
        if self._count >= int(STEPS):
            sys.exit()


_, STEPS, script, *arguments = sys.argv
progress.Progress = FixedProgress
sys.argv = [script, *arguments]
# As Python does for a script: what lies beside it can be imported.
sys.path.insert(0, str(Path(script).resolve().parent))
runpy.run_path(script, run_name="__main__")
