"""Record the power sensors of one card, with runs of short kernels after it; 4 minutes.

    .venv/bin/python docs/measurements/power/sensor_campaign.py FOLDER [--gpu 0] [--python python3]

writes into FOLDER (which it makes): recording.jsonl, all that was read; record.json, the sensor
record. How wrong each way of reading power was is printed. No setting of the card is changed.
Nobody else may compute on it. `advisor power sensor --trace FOLDER/recording.jsonl` makes the
record again.
"""

import argparse
import json
import time
from pathlib import Path

from advisor.formats.wire import to_plain
from advisor.settings import read_settings
from advisor.validity.sensor_record import keep_record
from advisor_power.gpu_worker import WorkerPlace
from advisor_power.sensor import measured, record, record_of, run_stages

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder", type=Path)
parser.add_argument("--gpu", default="0")
parser.add_argument("--python", default="python3")
options = parser.parse_args()

settings = read_settings()
options.folder.mkdir(parents=True)
begun_s, seed = time.monotonic(), time.time_ns()
place = WorkerPlace(gpu=options.gpu, python=options.python)
file = options.folder / "recording.jsonl"
trace = record(settings, place, file, seed, print, more=run_stages(seed))
print(f"{time.monotonic() - begun_s:.0f} s of GPU time, start of PyTorch included")
found = record_of(trace, "live")
(options.folder / "record.json").write_text(json.dumps(to_plain(found), indent=1) + "\n")
if found.accepted:
    keep_record(found, settings.home)
print(*found.reasons, *measured(trace, found), sep="\n")
