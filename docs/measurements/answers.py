"""What is advised for pairs that somebody looked at by hand, as a table.

    .venv/bin/python docs/measurements/answers.py

Profiles and model are the bundled ones. Energy is for the same work, against one after the other.
"""

from advisor.decide.recommend import Request
from advisor.decide.recommendation import RatedSplit
from advisor.errors import NoSplitError
from advisor.predict.profiles import make_profiles
from advisor.settings import read_settings
from advisor_advice.answer import answer_by
from advisor_advice.site.known_profiles import ProfileSet, checked_on
from advisor_data.files.bundled import GPU_MODEL, bundled_solo_points
from advisor_models.registry import Registry

PAIRS = (
    "mobilenet-train-b2 triad", "bert-train vit-infer", "bert-train bert-train",
    "llm-decode llm-prefill", "mobilenet-infer resnet50-train", "matmul-bf16 triad",
    "dit-step whisper-infer", "bert-infer-b2 vit-train", "bert-train embedding", "fft gemm",
    "fft resnet50-train-b2", "llm-decode matmul-bf16", "transpose walsh",
    "mobilenet-train-b2 mobilenet-train-b2", "vit-infer vit-infer", "llm-decode llm-decode",
    "reduction triad", "matmul-bf16 wav2vec2-infer-b2",
)  # fmt: skip


def main() -> None:
    """Print the table."""
    settings = read_settings()
    predictor = Registry(settings.home / "models").open(None)
    profiles = make_profiles(bundled_solo_points())
    print("| pair | answer | speeds, % | STP | energy saved, % | slower job, % |")
    print("| --- | --- | --- | --- | --- | --- |")
    for pair in PAIRS:
        found = ProfileSet(tuple(profiles[job, GPU_MODEL] for job in pair.split()), ())
        try:
            given = answer_by(predictor, found, Request(), checked_on(found, settings))
        except NoSplitError as error:
            print(f"| {pair.replace(' ', ' + ')} | {error} | | | | |")
            continue
        print(f"| {pair.replace(' ', ' + ')} | {row(given.recommendation.choice)} |")


def row(choice: RatedSplit) -> str:
    """The answer and what is expected of it."""
    p = choice.prediction
    if choice.sharing == "exclusive":
        return "one after the other | 100 / 100 | 1.00 | 0 | 100"
    speeds = [100 * part.speed.value for part in p.parts]
    saved = p.energy_saved
    return (
        f"{choice.name} | {' / '.join(f'{s:.0f}' for s in speeds)} | {p.stp.value:.2f} | "
        f"{100 * saved.value:+.1f} ({100 * saved.low:+.1f} to {100 * saved.high:+.1f}) | "
        f"{min(speeds):.0f}"
    )


if __name__ == "__main__":
    main()
