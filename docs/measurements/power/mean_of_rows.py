"""Mean size of the errors in rows of this folder's tables, over several tables.

    .venv/bin/python docs/measurements/power/mean_of_rows.py "sorting | 26/26 |" "+ triad | 26/50 |"

Takes the rows of data_pairs.py in docs/measurements/README.md that hold one of these texts: what an
earlier revision measured with tensors that are gone cannot be evaluated again. Beside each mean is
what holds 95 % of the means when other rows are drawn.
"""

import re
import sys
from pathlib import Path

import numpy as np

README = Path(__file__).parents[1] / "README.md"
COLUMNS = ("profile", "corrected", "model", "with data")
ROW = re.compile(r"^\| [^|]+ \+ [^|]+ \| [\d/]+ \| \d+ \|" + r" ([+-][\d.]+) \|" * len(COLUMNS))
DRAWS = 4000


def main() -> None:
    """Print how many rows there are, and each column's mean."""
    lines = [
        line for line in README.read_text().splitlines() if any(t in line for t in sys.argv[1:])
    ]
    rows = [list(map(float, match.groups())) for line in lines if (match := ROW.match(line))]
    if not rows:
        raise SystemExit(f"no row of {README.name} holds one of these: {', '.join(sys.argv[1:])}")
    sizes = np.abs(rows)
    drawn = np.random.default_rng(0).integers(len(sizes), size=(DRAWS, len(sizes)))
    low, high = np.percentile(sizes[drawn].mean(axis=1), [2.5, 97.5], axis=0)
    print(f"{len(rows)} rows")
    for column, mean, least, most in zip(COLUMNS, sizes.mean(axis=0), low, high, strict=True):
        print(f"{column}: {mean:.1f} % [{least:.1f} {most:.1f}]")


if __name__ == "__main__":
    main()
