"""Who shares with whom, all at once: a matching of kinds of jobs, and of cards with room, by HiGHS.

One job after the other, the best partner for each, leaves some without one whom another choice
would have left somebody.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import highspy
import numpy as np

from advisor.place.programs import solved

_SEARCH_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """Two kinds that may share a GPU; the same one twice where two of it may.

    Attributes:
        worth: Above 0.
        takes_gpu: Whether it takes one that is free; else one of the kinds is a card.
    """

    kinds: tuple[int, int]
    worth: float
    takes_gpu: bool


def matched(counts: Sequence[int], edges: Sequence[Edge], free_gpus: int) -> list[int]:
    """How often each edge is used, so that all together are worth most.

    Args:
        counts: How many there are of each kind.
        edges: To choose from.
        free_gpus: So many are taken at most.
    """
    if not edges:
        return []
    ends = np.array([edge.kinds for edge in edges])
    matrix = np.zeros((len(counts) + 1, len(edges)))
    for column in range(len(edges)):
        for kind in ends[column]:
            matrix[kind, column] += 1
    matrix[-1] = [edge.takes_gpu for edge in edges]
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = len(edges), len(matrix)
    program.col_cost_ = np.array([-edge.worth for edge in edges])
    program.col_lower_ = np.zeros(len(edges))
    program.col_upper_ = np.full(len(edges), float(max(counts)))
    program.integrality_ = [highspy.HighsVarType.kInteger] * len(edges)
    program.row_lower_ = np.full(len(matrix), -highspy.kHighsInf)
    program.row_upper_ = np.array([*map(float, counts), float(free_gpus)])
    rows, columns = np.nonzero(matrix)
    order = np.lexsort((rows, columns))
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = np.append(0, np.cumsum(np.bincount(columns, minlength=len(edges))))
    program.a_matrix_.index_ = rows[order]
    program.a_matrix_.value_ = matrix[rows, columns][order]
    found = solved(program, _SEARCH_S)
    return [0] * len(edges) if found is None else [round(count) for count in found]
