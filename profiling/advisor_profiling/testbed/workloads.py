"""Programs of `profiling/workloads` that advisor itself runs."""

from pathlib import Path


def workload_path(file_name: str) -> Path:
    """A program: in a checkout next to this package, else installed with it."""
    package = Path(__file__).parents[1]
    places = (package.parent / "workloads", package / "workloads")
    folder = next((place for place in places if place.is_dir()), places[0])
    return folder / file_name
