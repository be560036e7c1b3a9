"""What the model card says of a model, from its manifest."""

import yaml

from advisor.errors import DISTRIBUTION
from advisor_models.registry import Manifest
from advisor_training.train import SCORED


def front(m: Manifest) -> str:
    """The head of the card, in the form that Hugging Face reads."""
    metrics = [
        {"type": kind, "name": name, "value": m.figures[figure]}
        for kind, name, figure in (
            ("mape", "Error of the rates, %", "rate_mean_error_percent"),
            ("mape", "Error of the power, %", "power_mean_error_percent"),
            ("coverage", "Rates within their intervals, %", "rate_coverage_percent"),
            ("coverage", "Powers within their intervals, %", "power_coverage_percent"),
        )
    ]
    result = {
        "task": {"type": "tabular-regression"},
        "dataset": {"type": "pairs.jsonl", "name": "Jobs that were left out of training"},
        "metrics": metrics,
    }
    head = {
        "license": "apache-2.0",
        "library_name": DISTRIBUTION,
        "pipeline_tag": "tabular-regression",
        "tags": ["gpu", "energy", "mps", m.learner],
        "model-index": [{"name": m.version, "results": [result]}],
    }
    return f"---\n{yaml.safe_dump(head, sort_keys=False)}---\n"


def facts(m: Manifest) -> list[tuple[str, str]]:
    """What it was made from."""
    return [
        ("version", m.version),
        ("pairs", f"{m.dataset.pairs}, {m.dataset.pair_points} points"),
        ("jobs", f"{len(m.dataset.jobs)}: {', '.join(m.dataset.jobs)}"),
        ("cards", f"{m.dataset.cards} {', '.join(m.gpu_models)}"),
        ("SHA-256 of the points", f"`{m.dataset.sha256}`"),
    ]


def figures(m: Manifest) -> list[tuple[str, str]]:
    """How good it is for jobs that were left out of training."""
    f = {name: f"{value:.1f} %" for name, value in m.figures.items()}
    rates = f"mean {f['rate_mean_error_percent']}, median {f['rate_median_error_percent']}"
    uncapped = (
        f"rates {f['uncapped_rate_mean_error_percent']}, "
        f"power {f['uncapped_power_mean_error_percent']}"
    )
    held = f"{f['rate_coverage_percent']} of the rates, {f['power_coverage_percent']} of the powers"
    return [
        *(_worth(f, objective) for objective in SCORED),
        ("error of the rates", rates),
        ("error of the power", f"mean {f['power_mean_error_percent']}"),
        ("without limits", uncapped),
        (f"intervals for {100 * m.coverage:g} % hold", held),
    ]


def _worth(f: dict[str, str], objective: str) -> tuple[str, str]:
    word = f"oracle_{objective.replace('-', '_')}"
    return (
        f"worth of the chosen split, of the best measured: {objective}",
        f"{f[f'{word}_percent']} on average, {f[f'{word}_p10_percent']} at the tenth percentile, "
        f"{f[f'{word}_worst_percent']} at worst",
    )
