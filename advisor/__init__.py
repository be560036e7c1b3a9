"""How many SMs or CUs each of two jobs should get on one GPU, for the least energy per work."""

# pyright: reportUnsupportedDunderAll=false
import importlib

__version__ = "0.1.0"

# Where each name is, as `__init__.pyi` tells type checkers. What is called lies in the folders
# above, which import this one.
_MODULES = {
    "AdvisorError": "advisor.errors",
    "Counters": "advisor.core.records",
    "Gpu": "advisor.core.gpu",
    "Job": "advisor.core.job",
    "PairPoint": "advisor.core.records",
    "PriorRegressor": "advisor_training.learners",
    "Share": "advisor.core.gpu",
    "SoloPoint": "advisor.core.records",
    "load_dataset": "advisor_training.rows",
    "place": "advisor_advice.placing",
    "profile": "advisor_cli.measure.profile",
    "recommend": "advisor_advice.ask",
    "replicas": "advisor_advice.ask",
    "training_data": "advisor_training.train",
}

__all__ = ["__version__", *_MODULES]

# The extra that has what a call needs next to what every installation has.
_EXTRAS = {
    **dict.fromkeys(("place", "recommend", "replicas"), "advise"),
    **dict.fromkeys(("PriorRegressor", "load_dataset", "training_data"), "train"),
}


def __getattr__(name: str) -> object:
    """Import a name at its first use: each job that reports its progress imports this package."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_MODULES[name]), name)
    except ModuleNotFoundError as error:
        if name not in _EXTRAS or (error.name or "").startswith("advisor"):
            raise
        return _lacking(name, error.name)


def _lacking(name: str, missing: str | None) -> object:
    """What stands for a name of which an extra is missing, so that `help(advisor)` has the rest."""
    from advisor.errors import install

    text = f"advisor.{name} needs {missing}, which is not installed: {install(_EXTRAS[name])}"

    def lacking(*_args: object, **_kwargs: object) -> object:
        raise ImportError(text, name=missing)

    lacking.__name__ = lacking.__qualname__ = name
    lacking.__doc__ = text
    return lacking


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
