"""What is to be said of predictions because of the GPU that they are for."""

from collections.abc import Iterator, Sequence

from advisor.core.wording import count_of, listed
from advisor.predict.profiles import Profile
from advisor_models.manifest import MOST_PAIRS, Manifest, OtherGpu


def gpu_warnings(manifest: Manifest, profiles: Sequence[Profile]) -> Iterator[str]:
    """Sentences on a GPU model that the model has not seen, and on one without a known limit."""
    gpu_model = profiles[0].gpu_model
    if gpu_model not in manifest.gpu_models:
        yield _not_seen(manifest, profiles)
    if all(profile.power_limit_w is None for profile in profiles):
        yield (
            f"the power limit of the {gpu_model} is not known: watts are compared with the most "
            "that these jobs drew alone, and nothing is expected to hold their power down"
        )


def _not_seen(manifest: Manifest, profiles: Sequence[Profile]) -> str:
    known, gpu_model = manifest.other_gpu, profiles[0].gpu_model
    jobs = ",".join(dict.fromkeys(profile.job for profile in profiles))
    return (
        f"the model has not seen the {gpu_model}, only {', '.join(manifest.gpu_models)}: "
        f"{_width(known)}. {_pairs(known)}: advisor colocate --among {jobs}; "
        "docs/training.md says how to learn from them"
    )


def _width(known: OtherGpu) -> str:
    if all(factor == 1 for factor in known.widening.values()):
        return f"intervals are no wider, since leaving out the {_left_out(known)} took none"
    factors = [f"{factor:.2g} times for {name}" for name, factor in known.widening.items()]
    widths = f"intervals are wider: {listed(factors)}, "
    if known.left_out:
        return f"{widths}which leaving out the {_left_out(known)} took"
    return f"{widths}somewhat more than leaving out cards of one GPU model took"


def _left_out(known: OtherGpu) -> str:
    return " or the ".join(known.left_out)


def _pairs(known: OtherGpu) -> str:
    if known.pairs_to_par == 0:
        return "It took no pairs measured there; to be sure of this one, measure some"
    if known.pairs_to_par is None:
        return f"It takes more than {MOST_PAIRS} pairs measured there to need no wider ones"
    return f"About {count_of(known.pairs_to_par, 'pair')} measured there, and none need be wider"
