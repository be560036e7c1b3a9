"""The report of power: how cards read it, what operations, data, jobs and pairs draw."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.validity.sensor_record import SensorRecord
from advisor.wire.power import InputReport, KernelReport, ReadingError, SensorCurve
from advisor_power.reports import inputs as power_inputs
from advisor_power.reports import parts as power_parts
from advisor_power.reports import tables as power_tables
from advisor_power.reports.figures import (
    kernel_figures,
    overview,
    sensor_figures,
)
from advisor_training.reports.document import Figure, TextTable, to_html, write_files

HTML_NAME = "power.html"

LIMITS = (
    "What cannot be known here: how far the power of a board is off as a whole. That takes a meter "
    "outside of it; boards are linear, and off by up to 5 %. Compare values of one card only.",
    "Nor does any reading show what happens inside an execution that is shorter than the stated "
    "resolution, or what single parts of the GPU draw over time.",
)
"""What a reader must know first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorSection:
    """What is shown of a card."""

    record: SensorRecord
    curves: tuple[SensorCurve, ...]
    """Empty where its recording is not there."""
    errors: tuple[ReadingError, ...]
    """Of ways to read power; empty where no short kernels were recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the page with a heading of its own; `notes` stand above its tables."""

    title: str
    notes: tuple[str, ...]
    tables: tuple[TextTable, ...]
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What the report shows; something of it at least."""

    sensors: Sequence[SensorSection] = ()
    kernels: Sequence[KernelReport] = ()
    inputs: Sequence[InputReport] = ()
    """What was measured of the data of operations."""
    parts: Sequence[power_parts.FoundComponents] = ()
    """What the power of jobs and pairs goes to."""
    unknown: Sequence[str] = ()
    """Why it is not known of others."""


def write_report(shown: Shown, folder: Path) -> tuple[Path, ...]:
    """Write the page into the folder.

    Raises:
        StoreError: the files cannot be written.
    """
    cards = [_sensor_section(number, one) for number, one in enumerate(shown.sensors)]
    parts = [_parts_section(number, one) for number, one in enumerate(shown.parts)]
    inputs = [_input_section(number, one) for number, one in enumerate(shown.inputs)]
    kernels = [_kernel_section(number, one) for number, one in enumerate(shown.kernels)]
    first = overview(shown.kernels)
    page = to_html(
        "power.html",
        limits=LIMITS,
        figures=first,
        kernels=power_tables.kernels(shown.kernels),
        unknown=shown.unknown,
        sections=[*parts, *cards, *inputs, *kernels],
    )
    return write_files({HTML_NAME: page.encode()}, folder)


def _parts_section(number: int, found: power_parts.FoundComponents) -> Section:
    return Section(
        title=power_parts.title_of(found),
        notes=tuple(power_parts.notes_of(found)),
        tables=tuple(power_parts.tables_of(found)),
        figures=(power_parts.figure_of(number, found),),
    )


def _input_section(number: int, one: InputReport) -> Section:
    return Section(
        title=power_inputs.title_of(one),
        notes=tuple(power_inputs.notes_of(one)),
        tables=tuple(power_inputs.tables_of(one)),
        figures=(*power_inputs.overview_of(number, one), *power_inputs.curves_of(number, one)),
    )


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
