#!/bin/sh
# Slurm's TaskProlog, as the user: lines `export NAME=VALUE` go into the task's environment. The share is the
# one that root has written for this job. What a parent job had, which has submitted this one, goes.
theirs=${PATH:-}
. "${0%/*}/mps.sh"

job=
for found in "$RUN_FOLDER"/gpu*/jobs/"$SLURM_JOB_ID"; do
  [ ! -r "$found/share" ] || job=$found
done

case ${ADVISOR_PROGRESS_FILE:-} in "$RUN_FOLDER"/*) echo "unset ADVISOR_PROGRESS_FILE" ;; esac
if [ -z "$job" ]; then
  case ${CUDA_MPS_PIPE_DIRECTORY:-} in
    "$RUN_FOLDER"/*)
      for name in PIPE_DIRECTORY ACTIVE_THREAD_PERCENTAGE PINNED_DEVICE_MEM_LIMIT; do echo "unset CUDA_MPS_$name"; done ;;
  esac
  [ -n "${CUDA_MPS_ACTIVE_THREAD_PERCENTAGE:-}" ] || exit 0 # no job with gres/mps
  # Slurm runs no Prolog for a job that it sends again after its controller was killed: once more, from the start.
  [ "${SLURM_RESTART_COUNT:-0}${SLURM_STEP_ID:-4294967291}" != 04294967291 ] ||
    ! PATH="$theirs:$PATH" scontrol requeue "$SLURM_JOB_ID" >/dev/null 2>&1 || echo "print advisor: the job is requeued, this once"
  echo "print advisor: no MPS daemon of yours answers on this node, and without one the job would have no limit"
  exit 1
fi

folder=${job%/jobs/*}
echo "export CUDA_MPS_PIPE_DIRECTORY=$folder/pipe"
echo "export CUDA_VISIBLE_DEVICES=0" # the daemon has this GPU alone, and calls it 0; Slurm may say 1
echo "export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=$(cat "$job/share")"
# Each srun in the script would ask for a whole GPU, or for what comes with one.
for name in SLURM_GPUS SLURM_CPUS_PER_GPU SLURM_MEM_PER_GPU; do echo "unset $name"; done
if [ -r "$job/memory" ]; then
  memory=$(cat "$job/memory")
  echo "export CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=${memory}M"
  [ "${SLURM_STEP_ID:-4294967291}" != 4294967291 ] || # of the batch script
    echo "print advisor: at most $memory MiB of GPU memory: what asks for more fails as on a smaller card"
else
  echo "unset CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
fi

# Of several tasks one counts: each would overwrite what the others have written.
[ ! -w "$job/progress" ] || [ "${SLURM_PROCID:-0}" != 0 ] || echo "export ADVISOR_PROGRESS_FILE=$job/progress"
exit 0
