"""The report of power: how cards read it, and what was measured of single operations."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.validity.sensor_record import SensorRecord
from advisor.wire.kernel_power import KernelReport
from advisor.wire.power_readings import ReadingError, SensorCurve
from advisor_training.reports import power_tables
from advisor_training.reports.document import Figure, TextTable, to_html, to_png, write_files
from advisor_training.reports.power_figures import (
    kernel_figures,
    overview,
    sensor_figures,
)

HTML_NAME, PNG_NAME = "power.html", "power.png"

LIMITS = (
    "What cannot be known here: how far the power of a board is off as a whole. That takes a meter "
    "outside of it; boards are linear, and off by up to 5 %. Compare values of one card only.",
    "Nor does any reading show what happens inside an execution that is shorter than the stated "
    "resolution, or what single parts of the GPU draw over time.",
)
"""What a reader must know first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorSection:
    """What is shown of a card.

    Attributes:
        curves: Empty where its recording is not there.
        errors: Of ways to read power; empty where no short kernels were recorded.
    """

    record: SensorRecord
    curves: tuple[SensorCurve, ...]
    errors: tuple[ReadingError, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the page with a heading of its own; `notes` stand above its tables."""

    title: str
    notes: tuple[str, ...]
    tables: tuple[TextTable, ...]
    figures: tuple[Figure, ...]


def write_report(
    sensors: Sequence[SensorSection], kernels: Sequence[KernelReport], folder: Path
) -> tuple[Path, ...]:
    """Write the page and, where there is something to draw, the image into the folder.

    The image has all kernels in one figure and the sensors; those of each kernel are in the page.

    Args:
        sensors: Cards; with the kernels at least one.
        kernels: Measured operations.
        folder: Where.

    Raises:
        StoreError: the files cannot be written.
    """
    cards = [_sensor_section(number, one) for number, one in enumerate(sensors)]
    first = overview(kernels)
    page = to_html(
        "power.html",
        limits=LIMITS,
        figures=first,
        kernels=power_tables.kernels(kernels),
        sections=[*cards, *(_kernel_section(number, one) for number, one in enumerate(kernels))],
    )
    files = {HTML_NAME: page.encode()}
    # Not the figures of each kernel: dozens in one image take long, and cannot be read.
    if figures := [*first, *(figure for card in cards for figure in card.figures)]:
        files[PNG_NAME] = to_png(LIMITS, figures)
    return write_files(files, folder)


def _sensor_section(number: int, one: SensorSection) -> Section:
    record = one.record
    notes = [
        f"Source: {record.source}. Card {record.gpu_uuid}, {record.seconds:.0f} s of GPU time."
    ]
    notes += record.reasons
    if not one.curves:
        notes.append("Its recording is not here, so there are no curves.")
    if not one.errors:
        notes.append(
            "How wrong other ways of reading power are was not recorded on this card: "
            "docs/measurements/power/sensor_campaign.py does."
        )
    return Section(
        title=f"Sensor: {record.gpu_model}, driver {record.driver}, {record.measured_at[:10]}",
        notes=tuple(notes),
        tables=tuple(power_tables.of_sensor(record, one.errors)),
        figures=sensor_figures(number, record, one.curves),
    )


def _kernel_section(number: int, one: KernelReport) -> Section:
    notes = [power_tables.kernel_note(one)]
    if one.no_curve:
        notes.append(f"No curve: {one.no_curve}.")
    return Section(
        title=f"Kernel: {power_tables.name_of(one)} on {one.gpu_model}",
        notes=tuple(notes),
        tables=(),
        figures=kernel_figures(number, one),
    )
