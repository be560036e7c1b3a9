"""Integer programs over groups of jobs, solved by HiGHS (`highspy`)."""

import highspy
import numpy as np

from advisor.place.groups import ALONE, Groups
from advisor.place.options import Ints
from advisor.predict.profiles import Floats

GAP = 1e-4
"""Relative distance from its bound at which an integer program ends."""


def cheapest(groups: Groups, cost: Floats, used: Floats | None, time_limit_s: float) -> Ints | None:
    """How often to use each group, so that each job is in one of them, at the least cost.

    Args:
        groups: To choose from.
        cost: Of each group; one that is infinite is left out.
        used: What part of a GPU each group takes, infinite for one to leave out; None: it does
            not matter.
        time_limit_s: The search ends about then, with the best that it has.

    Returns:
        A count for each group; None where none were found.
    """
    kept = np.flatnonzero(np.isfinite(cost if used is None else used))
    if not len(kept):
        return None
    counts = np.array(list(groups.problem.kinds.values()), dtype=float)
    program = highspy.HighsLp()
    program.num_col_ = len(kept)
    program.col_cost_ = cost[kept]
    program.col_lower_ = np.zeros(len(kept))
    program.col_upper_ = np.full(len(kept), highspy.kHighsInf)
    program.integrality_ = [highspy.HighsVarType.kInteger] * len(kept)
    program.row_lower_ = counts if used is None else np.append(counts, -highspy.kHighsInf)
    program.row_upper_ = counts if used is None else np.append(counts, groups.problem.gpus)
    program.num_row_ = len(program.row_upper_)
    _set_matrix(program, groups, kept, used)
    found = solved(program, time_limit_s)
    if found is None:
        return None
    chosen = np.zeros(len(cost), dtype=np.int64)
    chosen[kept] = np.round(found)
    return chosen


def solved(program: highspy.HighsLp, time_limit_s: float) -> Floats | None:
    """Values of the columns of an integer program; None: none were found in time."""
    solver = highspy.Highs()
    # One thread: plans are the same on every host, and the service's other requests keep theirs.
    options = {"output_flag": False, "threads": 1, "time_limit": time_limit_s, "mip_rel_gap": GAP}
    for name, value in options.items():
        solver.setOptionValue(name, value)
    solver.passModel(program)
    solver.run()
    if solver.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return None
    return np.array(solver.getSolution().col_value)


def _set_matrix(program: highspy.HighsLp, groups: Groups, kept: Ints, used: Floats | None) -> None:
    """A row for each kind: how many of its jobs a group takes; and one for the GPUs in use."""
    first, second = groups.members[:, kept]
    columns = np.arange(len(kept))
    like = first == second
    other = (second != ALONE) & ~like
    kinds = [first, second[other]]
    places = [columns, columns[other]]
    values = [1.0 + like, np.ones(other.sum())]
    if used is not None:
        kinds.append(np.full(len(kept), len(groups.kinds)))
        places.append(columns)
        values.append(used[kept])
    column = np.concatenate(places)
    order = np.argsort(column, kind="stable")
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = np.append(0, np.cumsum(np.bincount(column, minlength=len(kept))))
    program.a_matrix_.index_ = np.concatenate(kinds)[order]
    program.a_matrix_.value_ = np.concatenate(values)[order]
