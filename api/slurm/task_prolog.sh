#!/bin/sh
# Slurm's TaskProlog, as the user: lines `export NAME=VALUE` go into the task's environment after Slurm has
# put its own percentage there, which is of whole counts and may be one at which libraries compute wrong
# results.
. "${0%/*}/mps.sh"

[ -n "${CUDA_MPS_ACTIVE_THREAD_PERCENTAGE:-}" ] || exit 0 # no job with gres/mps
gpu=${SLURM_JOB_GPUS:-${SLURM_STEP_GPUS:-}}
echo "export CUDA_MPS_PIPE_DIRECTORY=$(folder_of "$gpu" "$(id -u)")/pipe"
echo "export CUDA_VISIBLE_DEVICES=0" # the daemon has this GPU alone, and calls it 0; Slurm may say 1

# The driver takes 0, more than 100 and what is no number for no limit at all.
share=${ADVISOR_SHARE_PERCENT:-}
case $share in *[!0-9.]*) share= ;; esac
if echo "$share" | grep -Eqx '[1-9][0-9]?(\.[0-9]+)?|100'; then
  echo "export CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=$share"
  echo "unset SLURM_GPUS" # of `sbatch --gpus=1`: each srun in the script would ask for a whole GPU
else
  share=$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE
fi

# For the agent. Of several tasks one counts: each would overwrite what the others have written.
job=$(folder_of "$gpu" "$(id -u)")/jobs/$SLURM_JOB_ID
if [ -w "$job/share" ]; then
  [ -s "$job/share" ] || printf %s "$share" >"$job/share"
  if [ "${SLURM_PROCID:-0}" = 0 ]; then
    echo "export ADVISOR_PROGRESS_FILE=$job/progress"
  else
    echo "unset ADVISOR_PROGRESS_FILE"
  fi
fi
