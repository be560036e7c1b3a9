# What Prolog, Epilog and TaskProlog have in common: where the MPS daemon of a GPU lives.
# Each folder is root's, and in it `jobs` with a folder for each job that runs there, and `ended` with the
# exit status of those that the agent has not seen end; `pipe` and `log` are the daemon's user's. Slurm
# gives these scripts no PATH.

PATH=/usr/sbin:/usr/bin:/sbin:/bin
RUN_FOLDER=@RUN_FOLDER@
MPS_CONTROL=@MPS_CONTROL@
ADVISOR=@ADVISOR@
USERS=@USERS@ # `one` at a time on a node: the daemon is the user's; or `several`, served by one daemon of root's

# Runs the control program as the user, on the user's daemon, with nothing of the job's environment: the
# job's percentage would become the limit of the whole daemon. What ends it is root's, since a user may stop
# all that is his.
control() { # folder, GPU index, user id, seconds, arguments
  control_folder=$1 control_gpu=$2 control_user=$3 control_s=$4
  shift 4
  timeout -s KILL "$control_s" \
    setpriv --reuid="$control_user" --regid="$(id -g "$control_user")" --init-groups \
    env -i PATH="$PATH" CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES="$control_gpu" \
    CUDA_MPS_PIPE_DIRECTORY="$control_folder/pipe" CUDA_MPS_LOG_DIRECTORY="$control_folder/log" \
    "$MPS_CONTROL" "$@" 9>&-
}

is_answering() { # folder, GPU index, user id
  echo get_default_active_thread_percentage | control "$@" 2 >/dev/null 2>&1
}
