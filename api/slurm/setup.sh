#!/bin/sh
# Slurm with advisor's plugin on this one node: configuration and scripts. Starts and stops nothing.
#
#     setup.sh install     writes them; refuses where one of the files is there already
#     setup.sh remove      removes them; leaves, and names, what was changed since
#
# Variables: SLURM_FOLDER (/etc/slurm), RUN_FOLDER (/run/advisor-mps), SLURM_USER (slurm), GPU_FILES
# (/dev/nvidia0 ..), CPUS and MEMORY_MIB (of this host), ADVISOR (path of the program). docs/slurm.md
# explains every line.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
SLURM_FOLDER=${SLURM_FOLDER:-/etc/slurm}
RUN_FOLDER=${RUN_FOLDER:-/run/advisor-mps}
SLURM_USER=${SLURM_USER:-slurm}
GPU_FILES=${GPU_FILES:-$(ls /dev/nvidia[0-9]* 2>/dev/null || true)}
CPUS=${CPUS:-$(nproc)}
MEMORY_MIB=${MEMORY_MIB:-$(awk '/^MemTotal/ { print int($2 / 1024 * 0.95) }' /proc/meminfo)}
ADVISOR=${ADVISOR:-$(command -v advisor || true)}
ours=$SLURM_FOLDER/advisor
list=$ours/installed.sha256

FILES="slurm.conf gres.conf job_submit.lua advisor/advisor.conf advisor/agent.env advisor/advisor.lua
  advisor/service.lua advisor/json.lua advisor/mps.sh advisor/prolog.sh advisor/epilog.sh advisor/task_prolog.sh"

fail() {
  echo "setup.sh: $*" >&2
  exit 1
}

slurm_conf() { # number of GPUs
  host=$(hostname -s)
  cat <<END
ClusterName=advisor
SlurmctldHost=$host(127.0.0.1)
SlurmUser=$SLURM_USER
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
GresTypes=gpu,mps
JobSubmitPlugins=lua
Prolog=$ours/prolog.sh
PrologFlags=Alloc
Epilog=$ours/epilog.sh
TaskProlog=$ours/task_prolog.sh
NodeName=$host NodeAddr=127.0.0.1 CPUs=$CPUS RealMemory=$MEMORY_MIB Gres=gpu:$1,mps:$(($1 * 100))
PartitionName=shared Nodes=$host Default=YES ExclusiveUser=YES OverSubscribe=NO State=UP
END
}

gres_conf() {
  for file in $GPU_FILES; do
    echo "Name=gpu File=$file"
    echo "Name=mps Count=100 File=$file${1:+ $1}"
  done
}

install_files() {
  control=$(command -v nvidia-cuda-mps-control) || fail "nvidia-cuda-mps-control is missing: install NVIDIA's driver"
  command -v curl >/dev/null || fail "curl is missing: install it"
  set -- $GPU_FILES
  [ $# -gt 0 ] || fail "there is no /dev/nvidia0: load NVIDIA's driver, or set GPU_FILES"
  for name in $FILES; do
    [ ! -e "$SLURM_FOLDER/$name" ] || fail "$SLURM_FOLDER/$name is there already: nothing was written." \
      "docs/slurm.md says which lines an existing Slurm needs"
  done
  mkdir -p "$ours"
  slurm_conf $# >"$SLURM_FOLDER/slurm.conf"
  [ $# -eq 1 ] && flags= || flags=Flags=all_sharing
  gres_conf "$flags" >"$SLURM_FOLDER/gres.conf"
  install -m 0644 "$here/job_submit.lua" "$SLURM_FOLDER"
  install -m 0644 "$here/advisor.conf" "$here/advisor.lua" "$here/service.lua" "$here/json.lua" "$ours"
  install -m 0755 "$here/prolog.sh" "$here/epilog.sh" "$here/task_prolog.sh" "$ours"
  install -m 0600 "$here/agent.env" "$ours"
  sed "s|@RUN_FOLDER@|$RUN_FOLDER|; s|@MPS_CONTROL@|$control|; s|@ADVISOR@|$ADVISOR|" "$here/mps.sh" >"$ours/mps.sh"
  (cd "$SLURM_FOLDER" && sha256sum $FILES) >"$list"
  [ -n "$ADVISOR" ] || echo "the program advisor is missing: what jobs did together will not be reported"
  echo "written to $SLURM_FOLDER. Start it: systemctl restart munge slurmctld slurmd"
}

remove_files() {
  [ -e "$list" ] || fail "$list is missing: these files are not of setup.sh, nothing was removed"
  left=
  for name in $FILES; do
    [ -e "$SLURM_FOLDER/$name" ] || continue
    if grep " $name\$" "$list" | (cd "$SLURM_FOLDER" && sha256sum --check --status); then
      rm "$SLURM_FOLDER/$name"
    else
      left="$left $SLURM_FOLDER/$name"
    fi
  done
  rm "$list"
  rmdir "$ours" 2>/dev/null || true
  [ -z "$left" ] || fail "left, since they were changed:$left"
  echo "removed from $SLURM_FOLDER. Stop it: systemctl stop slurmctld slurmd"
}

case ${1:-} in
  install) install_files ;;
  remove) remove_files ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
