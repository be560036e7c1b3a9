#!/bin/sh
# Slurm's Prolog, as root: an MPS daemon of the job's user for the job's GPU. Fails where there is none,
# and Slurm drains the node: without a daemon the job would run on the whole GPU, and nobody would say so.
set -eu
. "${0%/*}/mps.sh"

# The agent reports what jobs did together. No job depends on it, and one that runs already stays alone.
start_agent() { # folder of a GPU and a user
  find "$1/ended" -type f -mmin +60 -delete 2>/dev/null || true # which no agent has taken away
  ours=${0%/*}
  address=$(sed -n 's/^ *address *= *\([^ ]*\).*/\1/p' "$ours/advisor.conf")
  (
    umask 077 # or others could hold the lock
    set -a
    PATH=${MPS_CONTROL%/*}:$PATH
    [ ! -r "$ours/agent.env" ] || . "$ours/agent.env"
    # Slurm kills what is left in the Prolog's process group: only what has left it goes to the background.
    setsid sh -c 'flock -n "$0" "$@" &' "$RUN_FOLDER/agent.lock" \
      "$ADVISOR" slurm agent --folder "$RUN_FOLDER" ${address:+--service "$address"} \
      </dev/null >>"$RUN_FOLDER/agent.log" 2>&1 9>&-
  )
}

[ -n "${CUDA_MPS_ACTIVE_THREAD_PERCENTAGE:-}" ] || exit 0 # no job with gres/mps
gpu=$SLURM_JOB_GPUS user=$SLURM_JOB_UID
folder=$(folder_of "$gpu" "$user")

umask 022
mkdir -p "$folder" # all below it under the lock: two jobs may start at once
[ -e "$folder/lock" ] || (umask 077 && : >"$folder/lock") # others could hold one that they may read
exec 9>"$folder/lock"
flock -w 20 9

if ! is_answering "$folder" "$gpu" "$user"; then
  rm -rf "$folder/jobs" "$folder/pipe" # of a daemon that has died
  install -d -m 0700 -o "$user" -g "$(id -g "$user")" "$folder/pipe" "$folder/log"
  control "$folder" "$gpu" "$user" -d >/dev/null 2>&1
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    is_answering "$folder" "$gpu" "$user" && break
    sleep 0.5
  done
  is_answering "$folder" "$gpu" "$user"
fi

job=$folder/jobs/$SLURM_JOB_ID
rm -rf "$job" # of the same job before it was requeued
mkdir -p "$job"
[ -x "$ADVISOR" ] || exit 0
case ${SLURM_JOB_COMMENT:-} in
  *advisor:*)
    printf %.1000s "$SLURM_JOB_COMMENT" >"$job/comment"
    for file in share progress; do
      install -m 0600 -o "$user" -g "$(id -g "$user")" /dev/null "$job/$file"
    done
    truncate -s 4096 "$job/progress" # docs/progress.md
    start_agent "$folder" || true
    ;;
esac
