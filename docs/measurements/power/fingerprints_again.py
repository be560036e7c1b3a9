"""Takes fingerprints of published inputs again, of which an older version counted less.

    .venv/bin/python docs/measurements/power/fingerprints_again.py FILE.jsonl [FILE.jsonl ...]

Numbers that were drawn come out the same each time. Tensors of files are not published: their lines
stay as they are, and have to be measured again. A product takes 2 to 5 s of a CPU.
"""

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

from advisor.formats.wire import to_plain
from advisor_power.operands.fill import fill_pair
from advisor_power.operands.fingerprint import fingerprint
from advisor_power.operands.from_file import FILE
from advisor_power.operands.grammar import parse_operands


def main() -> None:
    """Write the files anew."""
    for file in map(Path, sys.argv[1:]):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        again = [line if is_kept(line) else with_fingerprint(line) for line in lines]
        file.write_text("".join(f"{json.dumps(line)}\n" for line in again))
        print(f"{file}: {sum(map(is_kept, lines))} of {len(lines)} lines are as they were")


def is_kept(line: dict[str, Any]) -> bool:
    """Whether its fingerprint is new, or cannot be taken again."""
    found = line["fingerprint"]
    return not found or "product_signs" in found or f"{FILE}(" in line["case"]["operands"]


def with_fingerprint(line: dict[str, Any]) -> dict[str, Any]:
    """The line with a new one."""
    case = line["case"]
    found = taken(case["operands"], tuple(case["shape"]), case["dtype"])
    return {**line, "fingerprint": found}


@cache
def taken(operands: str, shape: tuple[int, int, int], dtype: str) -> dict[str, Any]:
    """The fingerprint of a product."""
    a, b = fill_pair(parse_operands(operands), shape, dtype)
    found: dict[str, Any] = to_plain(fingerprint(a.matrix, b.matrix, dtype))
    return found


if __name__ == "__main__":
    main()
