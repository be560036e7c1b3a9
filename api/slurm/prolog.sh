#!/bin/sh
# Slurm's Prolog, as root: an MPS daemon of the job's user for the job's GPU. Fails where there is none,
# and Slurm drains the node: without a daemon the job would run on the whole GPU, and nobody would say so.
set -eu
. "${0%/*}/mps.sh"

[ -n "${CUDA_MPS_ACTIVE_THREAD_PERCENTAGE:-}" ] || exit 0 # no job with gres/mps
gpu=$SLURM_JOB_GPUS user=$SLURM_JOB_UID
folder=$(folder_of "$gpu" "$user")

umask 022
mkdir -p "$folder/jobs"
exec 9>"$folder/lock"
flock -w 20 9

if ! is_answering "$folder" "$gpu" "$user"; then
  rm -rf "$folder/jobs" "$folder/pipe" # of a daemon that has died
  mkdir "$folder/jobs"
  install -d -m 0700 -o "$user" -g "$(id -g "$user")" "$folder/pipe" "$folder/log"
  control "$folder" "$gpu" "$user" -d >/dev/null 2>&1
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    is_answering "$folder" "$gpu" "$user" && break
    sleep 0.5
  done
  is_answering "$folder" "$gpu" "$user"
fi
: >"$folder/jobs/$SLURM_JOB_ID"
