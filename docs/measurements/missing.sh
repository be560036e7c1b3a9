#!/usr/bin/env bash
# Measures what the pages still miss, on one GPU of this host, in half an hour; each step has a limit
# and a home of its own, and one that is cut keeps what it measured.
#
#   docs/measurements/missing.sh FOLDER [STEP ...]     # all: five-jobs tests counted sliced llm
#   GPU=1 docs/measurements/missing.sh FOLDER llm      # several at once, each on a GPU of its own
#   PYTHON=/path/to/python docs/measurements/missing.sh FOLDER   # with advisor, torch, lightning, ..
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mkdir -p "$1" && cd "$1" && pwd)
shift
python=${PYTHON:-$root/.venv/bin/python}
export gpu=${GPU:-0}
cd "$root"

step() { # name, limit in seconds, command
  local name=$1 limit_s=$2 begin=$SECONDS rc=0
  shift 2
  [[ " $wanted " == *" $name "* ]] || return 0
  mkdir -p "$folder/$name"
  ADVISOR_HOME=$folder/$name/home timeout -s INT -k 30 "$limit_s" "$@" >"$folder/$name/log" 2>&1 || rc=$?
  echo "$name: exit $rc after $((SECONDS - begin)) s" | tee -a "$folder/marks"
}

wanted=${*:-five-jobs tests counted sliced llm}
export PYTHONUNBUFFERED=1

# audit.md: five jobs watched, advised and launched.
step five-jobs 620 "$python" docs/measurements/audit/five_jobs.py "$folder/five-jobs" --gpus "$gpu"

# The sensor's steps, and a kernel whose input draws the power. These look for no home.
step tests 270 env -u ADVISOR_HOME ADVISOR_TEST_GPU="$gpu" "$python" -m pytest -q -m gpu \
  tests/hardware/test_real_power_kernel.py tests/hardware/test_real_sensor.py

# progress.md: callbacks and pages beside what jobs know of themselves.
step counted 240 env CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES="$gpu" "$python" docs/measurements/counted.py --python "$python" \
  --only trainer-callback lightning-hook lightning-callback page progress

# sets.md: the nine sets that were asked first on the second H100, with and without MPS.
sets=$("$python" -c '
import json
asked = json.load(open("docs/measurements/sets/asked/h100_2.json"))["asked"]
print(",".join(one["set"] for one in asked if one["verdict"] == "share"))')
step sliced 430 "$python" -m advisor colocate --sets "$sets" --splits uncapped,time-sliced --run sets-14 --window 4 --gpu "$gpu"

# sets.md: language models at a part of the SMs, then the windows that are left of 500.
measure_language_models() {
  local job
  for job in llm-serve-10 llm-serve-30 llm-stream-10 llm-decode; do
    "$python" -m advisor profile "$job" --units 34,66,118,132 --window 5 --gpu "$gpu" || return
  done
  "$python" -m advisor colocate --sets 27 --seed 15 --run sets-15 --gpu "$gpu"
}
export -f measure_language_models
export python
step llm 600 bash -c measure_language_models
