"""What the paper reports, and where; every number here stands in its text.

Han et al., "Energy-efficient GPU SM allocation" (Stony Brook University): 16 workloads on a V100,
121 pairs at nine splits, objective (X1 + X2) / W. Its gains over 50/50 are those of the splits
that its model chose for workloads it had not seen, not the oracle's; the model stays 1.5 % below
the oracle on average (section 5.2). Its pairs are averaged first over the pairs of one workload
(figure 3).
"""

from dataclasses import dataclass

TITLE = "Energy-efficient GPU SM allocation"


@dataclass(frozen=True, slots=True)
class PaperFigure:
    """One number of the paper."""

    name: str
    percent: float
    place: str


MEAN_GAIN = PaperFigure("mean gain over 50/50", 35.0, "abstract; section 5.2, figure 3")
MOST_GAIN = PaperFigure("largest gain of a job's pairs", 60.6, "section 5.2, figure 3")
LEAST_GAIN = PaperFigure("smallest gain of a job's pairs", 12.0, "section 6: 12 % to 60 %")
BELOW_ORACLE = PaperFigure("its model's split below the oracle", 1.5, "abstract; section 5.2")
