"""What a run did as text for the textfile collector of Prometheus's node_exporter."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

from advisor.files.whole_files import PUBLIC_FILE, replace_file
from advisor_models.manifest import BUNDLED_NAME
from advisor_training.retrain.refused import REASONS
from advisor_training.retrain.report import OUTCOMES, RetrainReport


def write_metrics(path: Path, report: RetrainReport) -> None:
    """Replace the file at once, since a collector may read it at any moment.

    Raises:
        OSError: it cannot be written; the old file is as it was.
    """
    replace_file(path, metrics_text(report).encode(), PUBLIC_FILE)


def metrics_text(report: RetrainReport) -> str:
    """All metrics in the text format of Prometheus."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: RetrainReport) -> Iterator[str]:
    ended = datetime.fromisoformat(report.at).timestamp()
    yield from _family(
        "last_success_timestamp_seconds", "When it last came to its end", {"": ended}
    )
    outcomes = {_label("outcome", name): float(name == report.outcome) for name in OUTCOMES}
    yield from _family("outcome", "1 for how it ended", outcomes)
    champion = {_label("version", report.champion or BUNDLED_NAME): 1.0}
    yield from _family("champion_info", "1 for the model in use", champion)
    yield from _family("new_points", "Points not learned yet", {"": float(report.new_points)})
    left_out = dict.fromkeys(REASONS, 0) | {one.reason: one.points for one in report.left_out}
    by_reason = {_label("reason", name): float(count) for name, count in left_out.items()}
    yield from _family("left_out_points", "New points that were left out", by_reason)
    launches = {_label("reason", one.reason): one.points for one in report.launches_left_out}
    yield from _family("left_out_launches", "Launches that teach nothing", launches)
    for figure in ("error", "regret"):
        yield from _family(f"{figure}_percent", f"Mean {figure}, jobs unseen", _of(report, figure))


def _of(report: RetrainReport, figure: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for one in report.compared:
        if one.figure == figure:
            for model in ("champion", "challenger"):
                value = one.champion_percent if model == "champion" else one.challenger_percent
                found[_label("group", one.group, model=model)] = value
    return found


def _label(name: str, value: str, **more: str) -> str:
    labels = {name: value, **more}
    return "{" + ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _family(name: str, help_: str, samples: Mapping[str, float]) -> Iterator[str]:
    if samples:
        yield f"# HELP advisor_retrain_{name} {help_}"
        yield f"# TYPE advisor_retrain_{name} gauge"
    for labels, value in samples.items():
        yield f"advisor_retrain_{name}{labels} {value!r}"
