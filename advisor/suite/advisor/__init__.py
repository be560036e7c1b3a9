"""What programs of the wheel import as `advisor`, under a Python with PyTorch that has none."""

from pathlib import Path

__path__ = [str(Path(__file__).parents[2])]
