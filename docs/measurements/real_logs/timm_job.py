"""The training script of timm, unchanged, on a made-up ImageFolder.

Its `train.py` is not in the wheel: `--script` names that of the same version from its repository.
"""

import runpy
import sys
import tempfile
from pathlib import Path

from torch.optim.optimizer import register_optimizer_step_post_hook
from work import Work, parser, write_images

options = parser()
options.add_argument("--script", type=Path, required=True, help="train.py of timm")
options = options.parse_args()
work = Work(options, batch=2)

register_optimizer_step_post_hook(lambda *_: work.step())
with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    write_images(folder / "train", work.batch * work.steps_per_epoch)
    write_images(folder / "validation", 20)
    words = f"""
        --model test_resnet --num-classes 2 --img-size 32 --batch-size {work.batch} --workers 0
        --epochs {work.epochs} --warmup-epochs 0 --cooldown-epochs 0 --log-interval 5
        --device cpu --output {folder / "output"} --data-dir {folder}
    """
    sys.argv = [str(options.script), *words.split()]
    runpy.run_path(str(options.script), run_name="__main__")
