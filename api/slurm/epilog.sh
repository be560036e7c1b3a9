#!/bin/sh
# Slurm's Epilog, as root: the last job of a user on a GPU takes the MPS daemon along. Never fails: that
# would drain the node.
set -u
. "${0%/*}/mps.sh"

for job in "$RUN_FOLDER"/*/jobs/"$SLURM_JOB_ID"; do
  [ -e "$job" ] || continue
  folder=$(dirname "$(dirname "$job")")
  name=$(basename "$folder") # gpuINDEX-USER
  gpu=${name#gpu} gpu=${gpu%-*} user=${name##*-}
  exec 9>"$folder/lock"
  flock -w 20 9
  if [ -e "$job/comment" ]; then
    mkdir -p "$folder/ended"
    printf %s "${SLURM_JOB_EXIT_CODE:-}" >"$folder/ended/$SLURM_JOB_ID"
  fi
  rm -rf "$job"
  [ -n "$(ls "$folder/jobs")" ] || echo quit -t 5 | control "$folder" "$gpu" "$user" 10 >/dev/null 2>&1
done
exit 0
