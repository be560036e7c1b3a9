#!/bin/sh
# Slurm's Prolog, as root: an MPS daemon for the job's GPU, and the job's share in a file of root's, by which
# the TaskProlog goes. It fails, and Slurm drains the node, only where root cannot write: where a daemon of
# the user's does not start or answer, the job is refused, since users may end what is theirs.
set -u
. "${0%/*}/mps.sh"

# The agent reports what jobs did together. No job depends on it, and one that runs already stays alone.
start_agent() { # folder of a GPU
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

start_daemon() {
  rm -rf "$folder/jobs" "$folder/pipe" # of a daemon that has died
  install -d -m "$mode" -o "$user" -g "$(id -g "$user")" "$folder/pipe" "$folder/log"
  control "$folder" "$gpu" "$user" 10 -d $server >/dev/null 2>&1
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    is_answering "$folder" "$gpu" "$user" && return
    sleep 0.5
  done
  return 1
}

value() { # of a key in the job's word
  printf %s "$word" | tr , '\n' | sed -n "s/^$1=//p"
}

# What was advised holds for the part that Slurm has counted; if that was changed, its own does.
write_share() {
  word=$(printf %s "${SLURM_JOB_COMMENT:-}" | tr ' ;\t\n' '\n\n\n\n' | sed -n 's/^advisor://p' | head -n 1)
  share=$(value share) memory=$(value memory)
  if [ "$(value counted)" != "$percent" ] ||
    ! printf '%s\n' "$share" | grep -Eqx '[1-9][0-9]?(\.[0-9]+)?|100'; then
    share=$percent memory=
  fi
  case $memory in '' | *[!0-9]*) ;; *) printf %s "$memory" >"$job/memory" ;; esac
  printf %s "$share" >"$job/share.new" && mv "$job/share.new" "$job/share"
}

percent=${CUDA_MPS_ACTIVE_THREAD_PERCENTAGE:-}
[ -n "$percent" ] || exit 0 # no job with gres/mps
gpu=$SLURM_JOB_GPUS owner=$SLURM_JOB_UID
case $USERS in
  several) user=0 mode=0755 server=-multiuser-server ;;
  *) user=$owner mode=0700 server= ;;
esac
folder=$RUN_FOLDER/gpu$gpu-$user
job=$folder/jobs/$SLURM_JOB_ID

umask 022
mkdir -p "$folder" || exit 1 # all below it under the lock: two jobs may start at once
[ -e "$folder/lock" ] || (umask 077 && : >"$folder/lock") || exit 1 # others could hold one that they may read
exec 9>"$folder/lock"
flock -w 60 9 || exit 0 # without a share the TaskProlog refuses the job

is_answering "$folder" "$gpu" "$user" || start_daemon || exit 0
rm -rf "$job" # of the same job before it was requeued
mkdir -p "$job" || exit 1
case ${SLURM_JOB_COMMENT:-} in
  *advisor:*)
    printf %.1000s "$SLURM_JOB_COMMENT" >"$job/comment"
    install -m 0600 -o "$owner" -g "$(id -g "$owner")" /dev/null "$job/progress"
    truncate -s 4096 "$job/progress" # docs/job-file.md
    ;;
esac
write_share || exit 1
[ ! -e "$job/comment" ] || [ ! -x "$ADVISOR" ] || start_agent "$folder"
exit 0
