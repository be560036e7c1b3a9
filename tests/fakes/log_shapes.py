"""Logs in the shapes of frameworks, with the progress that each line tells; values are made up.

Each shape yields the text as it is written, and the progress that was made with it.
"""

import itertools
from collections.abc import Callable, Iterator

Written = Iterator[tuple[str, float]]


def _steps(form: str, rise: float = 1, first: int = 1, per_line: int = 1) -> Callable[[], Written]:
    """A line that holds the count `i`, which rises by `per_line`, and `e`, its hundreds."""

    def shape() -> Written:
        for n in itertools.count():
            i = first + n * per_line
            yield form.format(i=i, e=i // 100, j=i % 100, s=256 * i, noise=20 + n % 7), rise

    return shape


def _bar(form: str, total: int, end: str = "\r", step: int = 1, first: int = 1) -> Written:
    for i in range(first, total + bool(first), step):
        yield form.format(i=i, n=total, p=100 * i // total) + end, step


def _epochs(
    form: str, total: int, *, step: int = 1, first: int = 1, end: str = "\n", after: str = ""
) -> Callable[[], Written]:
    """A bar for each epoch `{e}`, and what is printed after it, which is no progress."""

    def shape() -> Written:
        for e in itertools.count(1):
            yield from _bar(form.replace("{e}", str(e)), total, end, step, first)
            for line in after.replace("{e}", str(e)).splitlines(keepends=True):
                yield line, 0

    return shape


def _after(prepares: list[str], work: Callable[[], Written]) -> Callable[[], Written]:
    """Lines that prepare the work, each with `i` of 20."""

    def shape() -> Written:
        for form in prepares:
            for i in range(1, 21):
                yield form.format(i=i, p=5 * i, k=1000 * i), 0
        yield from work()

    return shape


def _table() -> Written:
    for i in itertools.count(1):
        rows = (
            ("rollout/", "", 0),
            ("   ep_rew_mean", 20 + i % 7, 0),
            ("   fps", 2100 + 37 * (i % 5), 0),
            ("   iterations", i, 1),
            ("   total_timesteps", 2048 * i, 0),
        )
        for name, value, progress in rows:
            yield f"| {name:<20} | {value:<8} |\n", progress


def _speed_before_count() -> Written:
    for i in itertools.count(1):
        speed = 90000 + 900 * min(i, 12) - 40 * max(0, i - 12)
        yield f"fps step: {speed} fps total: 60000 epoch: {i}/5000 frames: {65536 * i}\n", 1


def _validated() -> Written:
    """A Trainer's bar of 400 steps without a name, with an evaluation of 13 batches in between."""
    for i in itertools.count(1):
        yield f"{i // 4:3d}%|##        | {i}/400 [00:10<1:10, 2.11it/s]\r", 1
        if i % 60 == 0:
            for batch in range(1, 14):
                yield f"{7 * batch}%|###       | {batch}/13 [00:01<00:01, 9.9it/s]\r", 0


def _updates() -> Written:
    for i in itertools.count(100, 100):
        e, j = divmod(i - 100, 2000)
        yield f"x | INFO | train_inner | epoch {e + 1:03d}:  {j + 100:4d} / 2000 loss=9.1, ", 0
        yield f"wps=31000, ups=4.2, num_updates={i}, lr=1e-05, wall={i // 20}\n", 100


def _keras() -> Written:
    for e in itertools.count(1):
        yield f"Epoch {e}/50\n", 0
        for i in range(1, 41):
            yield f"{i:2d}/40 ---- 2s 3ms/step - accuracy: 0.51{i % 10} - loss: 1.2{i % 10}\n", 1


def _two_lines() -> Written:
    for i in itertools.count(10, 10):
        yield f"[INFO] [logging.py:96:log_dist] [Rank 0] step={i}, skipped=0, lr=[9.6e-06]\n", 0
        yield f"[INFO] epoch=0/micro_step={i}/global_step={i}, CurrSamplesPerSec=12.3\n", 10


def _thermo() -> Written:
    yield "   Step          Temp          E_pair         TotEng         Press     \n", 0
    for i in itertools.count(0, 100):
        yield f"{i:10d}   1.4{i // 100 % 10}      -6.7733681   -4.6134356   -5.0197073\n", 100


def _csv() -> Written:
    yield '#"Step","Potential Energy (kJ/mole)","Temperature (K)","Speed (ns/day)"\n', 0
    for i in itertools.count(500, 500):
        yield f"{i},-13402.{i % 97},300.{i % 89},{120 + i % 7}\n", 500


def _ranks() -> Written:
    """Four processes that are not in step write the same lines."""
    for i in itertools.count(4):
        for rank in (0, 3, 1, 2):
            yield f"[rank{rank}]: step {i - rank} loss 2.1\n", float(rank == 0)


def _requests() -> Written:
    for i in itertools.count():
        yield f'INFO:     127.0.0.1:{40000 + i % 90} - "POST /v1/embed HTTP/1.1" 200 OK\n', 1


def _nginx() -> Written:
    for i in itertools.count():
        yield (
            (
                f"10.0.0.{i % 9} - - [02/Mar/2026:10:00:{i % 60:02d} +0000] "
                f'"GET /predict?n={i % 31} HTTP/1.1" 200 {1500 + i % 77} "-" "wrk"\n'
            ),
            1,
        )


TQDM = "{p:3d}%|####      | {i}/{n} [00:01<00:02, 12.51it/s]"

SHAPES: dict[str, Callable[[], Written]] = {
    "plain": _steps("step {i} loss 2.1\n"),
    "PyTorch MNIST": _epochs(
        "Train Epoch: {e} [{i}/2048 ({p}%)]\tLoss: 0.5", 2048, step=64, first=0
    ),
    "PyTorch ImageNet": _epochs(
        "Epoch: [{e}][{i:4d}/{n}]\tTime  0.512 ( 0.601)\tData  0.0 ( 0.1)\tLoss 6.9e+00",
        60,
        after="Test: [1/9]\tTime 0.5\nTest: [5/9]\tTime 0.5\nTest: [9/9]\tTime 0.5\n",
    ),
    "torchvision": _epochs(
        "Epoch: [{e}]  [{i:4d}/{n}]  eta: 0:01:02  lr: 0.02  time: 0.51  max mem: 4012", 50
    ),
    "timm": _epochs(
        "Train: {e} [{i:4d}/{n} ({p:3d}%)]  Loss: 6.9 (6.9)  Time: 0.7s, 90.1/s  LR: 1.0e-05", 60
    ),
    "MMEngine": _epochs(
        "03/02 10:00:00 - mmengine - INFO - Epoch(train)  [{e}][{i:4d}/{n}]  lr: 1e-02  loss: 2", 60
    ),
    "Lightning": _epochs(
        "Epoch {e}: {p:3d}%|##   | {i}/{n} [00:01<00:05, 9.51it/s, v_num=3]",
        60,
        end="\r",
        after="".join(
            f"Validation DataLoader 0:  50%|##  | {n}/6 [00:00<00:00]\r" for n in range(7)
        ),
    ),
    "Ultralytics": _epochs(
        "      {e}/100      2.5G      1.2        640: {p:3d}%|####      | {i}/{n} [00:04<00:12]",
        60,
        end="\r",
        after="".join(
            f"    Class     Images: {20 * n}%|##  | {n}/5 [00:01<00:00]\r" for n in range(1, 6)
        ),
    ),
    "Keras": _keras,
    "bar of each image": _epochs(TQDM, 50, end="\r"),
    "Trainer with evaluation": _validated,
    "tqdm without a total": _steps("{i}it [00:10,  9.91it/s]\r"),
    "tqdm, scaled": _steps(" 20%|##        | {i}.73M/1.00G [00:10<00:30, 20.1Mtok/s]\r", 1e6),
    "fairseq": _updates,
    "fairseq JSON": _steps('{{"epoch": 1, "num_updates": "{i}", "wps": "31000", "wall": "{e}"}}\n'),
    "Megatron-LM": _steps(
        " [2026-03-02 10:00:00] iteration {i:8d}/  500000 | consumed samples: {s:12d} | elapsed "
        "time per iteration (ms): 1234.5 | global batch size:   256 | lm loss: 7.9E+00 |\n",
        10,
        10,
        10,
    ),
    "torchtitan": _steps(
        "[rank0]:2026-03-02 10:00:00,123 - root - INFO - \x1b[31mstep: {i:2}  \x1b[32mloss:  8.1  "
        "\x1b[38;2;54;234;195mmemory: 40.10GiB(50.70%)  \x1b[34mtps: 7,012\x1b[39m\n"
    ),
    "DeepSpeed": _two_lines,
    "MaxText": _steps("completed step: {i}, seconds: 1.2, TFLOP/s/device: 301.1, loss: 10.1\n"),
    "MLPerf": _steps(
        ':::MLLOG {{"time_ms": 17000000{i:05d}, "event_type": "POINT_IN_TIME", "key": "loss", '
        '"value": 2.1, "metadata": {{"lineno": 312, "step_num": {i}}}}}\n'
    ),
    "nanoGPT": _steps("iter {i}: loss 2.1034, time 120.51ms, mfu 31.20%\n"),
    "llm.c": _steps("step {i:5d}/19560 | loss 7.2 | norm 1.2 | 512.31 ms | 43.1% bf16 MFU\n"),
    "Paddle": _steps(
        "[2026-03-02 10:00:00] global step {i}, epoch: 1, batch: {j}, speed: 5.2 step/s\n"
    ),
    "TensorFlow": _steps("INFO:tensorflow:loss = 2.1, step = {i} (1.2 sec)\n"),
    "detectron2": _steps("eta: 1:02:03  iter: {i}  total_loss: 2.1  time: 0.3\n", 20, 19, 20),
    "Composer": _steps("[batch={i}/4800]:\n\t Train time/epoch: 0\n"),
    "Stable-Baselines3": _table,
    "rl_games": _speed_before_count,
    "rsl_rl": _steps("                Learning iteration {i}/1500                \n"),
    "XGBoost": _steps("[{i}]\ttrain-rmse:0.51{noise}\teval-rmse:0.6{noise}\n"),
    "CatBoost": _steps(
        "{i}:\tlearn: 0.51\ttest: 0.52\tbest: 0.52 (3)\ttotal: 61ms\tremaining: 1s\n"
    ),
    "LAMMPS": _thermo,
    "OpenMM": _csv,
    "NAMD": _steps("ENERGY: {i:7d}   211.1   512.9   310.4   -21034.2   300.1\n", 20, 0, 20),
    "GROMACS": _steps("step {i}, remaining wall clock time:  1000 s          \r", 100, 0, 100),
    "Folding@home": _steps(
        "10:00:00:WU00:FS01:0x22:Completed {i} out of 10000000 steps ({e}%)\n", 10000, 10000, 10000
    ),
    "Blender": _epochs(
        "Fra:{e} Mem:12.51M | Time:00:01.2 | Remaining:00:03.1 | Scene | Sample {i}/{n}",
        64,
    ),
    "four ranks": _ranks,
    "uvicorn": _requests,
    "nginx": _nginx,
    "data first": _after(
        [
            "Generating train split: {k} examples [00:01, 9000.1 examples/s]\r",
            "Running tokenizer on dataset (num_proc=8): {p:3d}%|##  | {k}/20000 [00:02<00:02]\r",
            "Map: {p:3d}%|###     | {k}/20000 [00:02<00:02, 9000.1 examples/s]\r",
        ],
        _steps("  1%|        | {i}/2000 [00:10<1:10:22,  2.11s/it]\r"),
    ),
    "weights first": _after(
        [
            "Fetching 20 files: {p}%|##  | {i}/20 [00:01<00:05]\r",
            "model.safetensors: {p}%|##  | {i}.5M/20.5M [00:01<00:05, 75.1MB/s]\r",
            "Loading checkpoint shards: {p}%|##  | {i}/20 [00:01<00:05,  1.01s/it]\r",
        ],
        _steps("{{'step': {i}, 'loss': 2.1}}\n"),
    ),
    "sanity check first": _after(
        ["Sanity Checking DataLoader 0: {p}%|##  | {i}/20 [00:01<00:05]\r"],
        _epochs("Epoch {e}: {p:3d}%|##   | {i}/{n} [00:01<00:05, 9.51it/s]", 100, end="\r"),
    ),
}
