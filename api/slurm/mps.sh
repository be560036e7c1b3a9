# What Prolog, Epilog and TaskProlog have in common: where the MPS daemon of a GPU and a user lives.
# Each folder is root's, and in it `jobs` with a folder for each job that runs there, and `ended` with the
# exit status of those that the agent has not seen end; `pipe` and `log` are the user's. Slurm gives these
# scripts no PATH.

PATH=/usr/sbin:/usr/bin:/sbin:/bin
RUN_FOLDER=@RUN_FOLDER@
MPS_CONTROL=@MPS_CONTROL@
ADVISOR=@ADVISOR@

folder_of() { # GPU index, user id
  printf '%s/gpu%s-%s' "$RUN_FOLDER" "$1" "$2"
}

# Runs the control program as the user, on the user's daemon, with nothing of the job's environment: the
# job's percentage would become the limit of the whole daemon.
control() { # folder, GPU index, user id, arguments
  control_folder=$1 control_gpu=$2 control_user=$3
  shift 3
  setpriv --reuid="$control_user" --regid="$(id -g "$control_user")" --init-groups \
    env -i PATH="$PATH" CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES="$control_gpu" \
    CUDA_MPS_PIPE_DIRECTORY="$control_folder/pipe" CUDA_MPS_LOG_DIRECTORY="$control_folder/log" \
    timeout 10 "$MPS_CONTROL" "$@" 9>&-
}

is_answering() { # folder, GPU index, user id
  echo get_default_active_thread_percentage | control "$@" >/dev/null 2>&1
}
