"""What the paper reports, and where; every number here stands in its text.

Han et al., "Energy-efficient GPU SM allocation" (Stony Brook University): 16 workloads on a V100,
121 pairs at nine splits, objective (X1 + X2) / W. Its gains over 50/50 are those of the splits
that its model chose for workloads it had not seen, not the oracle's; the model stays 1.5 % below
the oracle on average (section 5.2). Its pairs are averaged first over the pairs of one workload
(figure 3). Figures 3 and 4 have more numbers, which the text does not give.
"""

from dataclasses import dataclass

TITLE = "Energy-efficient GPU SM allocation"


@dataclass(frozen=True, slots=True)
class PaperGroup:
    """A group of pairs in figure 4.

    Attributes:
        number: As the paper counts it.
        classes: Classes of the two jobs, compute then memory, H or L.
        certain: Whether the text says which classes these are.
        gain_percent: Mean gain over 50/50; None where the text gives none.
        note: What else the text says about it.
        place: Where it is said.
    """

    number: int
    classes: tuple[str, str]
    certain: bool
    gain_percent: float | None
    note: str
    place: str


@dataclass(frozen=True, slots=True)
class PaperFigure:
    """One number of the paper."""

    name: str
    percent: float
    place: str


GROUPS = (
    PaperGroup(
        1, ("HH", "HH"), False, 65.7, "90 % goes to the CUDA sample, consistently",
        "section 5.2, figure 4",
    ),
    PaperGroup(
        1, ("HH", "HL"), False, 65.7, "90 % goes to the CUDA sample, consistently",
        "section 5.2, figure 4",
    ),
    PaperGroup(
        2, ("HL", "HL"), True, 38.0, "90/10 is the best split of 82 %", "section 5.2, figure 4"
    ),
    PaperGroup(3, ("HH", "LL"), False, None, "gains less than group 4", "section 5.2, figure 4"),
    PaperGroup(
        4, ("HL", "LL"), True, None, "10/90 is the best split of 92 %: the light job gets 90 %",
        "section 5.2, figure 4",
    ),
    PaperGroup(5, ("LL", "LL"), True, 0.8, "50/50 is enough", "section 5.2, figure 4"),
)  # fmt: skip
"""The groups of figure 4.

The text names the classes of groups 2, 4 and 5. It calls group 1 "most resource-intensive" and
says that it holds jobs of high compute and high memory, but not next to which; group 3 has jobs of
low compute and low memory, and by exclusion jobs of high compute and high memory. Three classes
make six kinds of pairs and the figure has five groups, so HH with HH and HH with HL both stand
for group 1 here.
"""

MEAN_GAIN = PaperFigure("mean gain over 50/50", 35.0, "abstract; section 5.2, figure 3")
MOST_GAIN = PaperFigure("largest gain of a job's pairs", 60.6, "section 5.2, figure 3")
LEAST_GAIN = PaperFigure("smallest gain of a job's pairs", 12.0, "section 6: 12 % to 60 %")
BELOW_ORACLE = PaperFigure("its model's split below the oracle", 1.5, "abstract; section 5.2")
FIGURES = (MEAN_GAIN, MOST_GAIN, LEAST_GAIN, BELOW_ORACLE)
