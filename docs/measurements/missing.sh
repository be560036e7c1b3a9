#!/usr/bin/env bash
# Measures what the pages still miss, on one GPU of this host, in half an hour; each step has a limit,
# and one that is cut keeps what it measured.
#
#   docs/measurements/missing.sh FOLDER [STEP ...]     # both: tests (an H200) sliced (an H100)
#   GPU=1 docs/measurements/missing.sh FOLDER sliced   # on another GPU; while `tests` runs, this waits
#   PYTHON=/path/to/python docs/measurements/missing.sh FOLDER   # with advisor, torch, transformers
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mkdir -p "$1" && cd "$1" && pwd)
shift
python=${PYTHON:-$root/.venv/bin/python}
gpu=${GPU:-0}
cd "$root"

step() { # name, limit in seconds, command
  local name=$1 limit_s=$2 begin=$SECONDS rc=0
  shift 2
  [[ " $wanted " == *" $name "* ]] || return 0
  mkdir -p "$folder/$name"
  timeout -s INT -k 30 "$limit_s" "$@" >"$folder/$name/log" 2>&1 || rc=$?
  echo "$name: exit $rc after $((SECONDS - begin)) s" | tee -a "$folder/marks"
}

wanted=${*:-tests sliced}
export PYTHONUNBUFFERED=1

# All hardware tests, in one go and with nothing beside them; these look for no home.
step tests 960 env -u ADVISOR_HOME ADVISOR_TEST_GPU="$gpu" "$python" -m pytest -q -m gpu tests/hardware

# sets.md: the nine sets that were asked first on the second H100, with and without MPS.
sets=$("$python" -c '
import json
asked = json.load(open("docs/measurements/sets/asked/h100_2.json"))["asked"]
print(",".join(one["set"] for one in asked if one["verdict"] == "share"))')
export ADVISOR_HOME=$folder/sliced/home
step sliced 540 "$python" -m advisor colocate --sets "$sets" --splits uncapped,time-sliced --run sets-14 --window 4 --gpu "$gpu"
