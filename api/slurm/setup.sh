#!/bin/sh
# Slurm with advisor's plugin on this one node: configuration and scripts. Starts and stops nothing.
#
#     setup.sh install     writes them; refuses where one of the files is there already
#     setup.sh remove      removes them; leaves, and names, what was changed since
#
# Variables: SLURM_FOLDER (/etc/slurm), RUN_FOLDER (/run/advisor-mps), SLURM_USER (slurm), STATE_FOLDER
# (/var/lib/slurm/slurmctld), GPU_FILES (/dev/nvidia0 ..), GPU_TYPE (such as h200; none where it is empty), CPUS
# and MEMORY_MIB (of this host), ADVISOR (path of the program), USERS (one, or several at a time on a node), BOOKS
# (host of slurmdbd; none where it is empty). docs/slurm.md explains every line.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
SLURM_FOLDER=${SLURM_FOLDER:-/etc/slurm}
RUN_FOLDER=${RUN_FOLDER:-/run/advisor-mps}
SLURM_USER=${SLURM_USER:-slurm}
STATE_FOLDER=${STATE_FOLDER:-/var/lib/slurm/slurmctld}
USERS=${USERS:-one}
BOOKS=${BOOKS:-}
GPU_TYPE=${GPU_TYPE:-}
GPU_FILES=${GPU_FILES:-$(ls /dev/nvidia[0-9]* 2>/dev/null || true)}
CPUS=${CPUS:-$(nproc)}
MEMORY_MIB=${MEMORY_MIB:-$(awk '/^MemTotal/ { print int($2 / 1024 * 0.95) }' /proc/meminfo)}
ADVISOR=${ADVISOR:-$(command -v advisor || true)}
ours=$SLURM_FOLDER/advisor
list=$ours/installed.sha256

FILES="slurm.conf gres.conf job_submit.lua advisor/advisor.conf advisor/agent.env advisor/advisor.lua
  advisor/advisor-slurm-match.service advisor/mps.sh advisor/prolog.sh advisor/epilog.sh advisor/task_prolog.sh"

fail() {
  echo "setup.sh: $*" >&2
  exit 1
}

slurm_conf() { # number of GPUs
  # slurmdbd answers to the address that slurmctld has called from, which is not always that of the name.
  [ -n "$BOOKS" ] && [ "$address" != 127.0.0.1 ] && by_name= || by_name=NoCtldInAddrAny,
  [ "$USERS" = several ] && exclusive=NO || exclusive=YES
  cat <<END
ClusterName=advisor
SlurmctldHost=$host($address)
SlurmUser=$SLURM_USER
StateSaveLocation=$STATE_FOLDER
CommunicationParameters=${by_name}NoInAddrAny
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
NodeName=$host NodeAddr=$address CPUs=$CPUS RealMemory=$MEMORY_MIB Gres=gpu:${GPU_TYPE:+$GPU_TYPE:}$1,mps:$(($1 * 100))
PartitionName=shared Nodes=$host Default=YES ExclusiveUser=$exclusive OverSubscribe=NO State=UP${BOOKS:+ TRESBillingWeights=CPU=1.0,GRES/gpu=100.0,GRES/mps=1.0}
END
  [ -z "$BOOKS" ] || cat <<END
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=$BOOKS
AccountingStorageTRES=gres/gpu,${GPU_TYPE:+gres/gpu:$GPU_TYPE,}gres/mps
END
}

gres_conf() {
  for file in $GPU_FILES; do
    echo "Name=gpu ${GPU_TYPE:+Type=$GPU_TYPE }File=$file"
    echo "Name=mps Count=100 File=$file${1:+ $1}"
  done
}

install_files() {
  control=$(command -v nvidia-cuda-mps-control) || fail "nvidia-cuda-mps-control is missing: install NVIDIA's driver"
  case $USERS in one | several) ;; *) fail "USERS=$USERS is neither one nor several" ;; esac
  id "$SLURM_USER" >/dev/null 2>&1 || fail "there is no user $SLURM_USER: install slurmctld, or set SLURM_USER"
  # Slurm listens where the host's name leads to, which is 127.0.1.1 on a Debian as installed.
  host=$(hostname -s) address=$(getent ahostsv4 "$(hostname)" | awk '{ print $1; exit }')
  [ -n "$address" ] || fail "the name of this host, $(hostname), has no address: add \"127.0.1.1 $(hostname)\" to /etc/hosts"
  set -- $GPU_FILES
  [ $# -gt 0 ] || fail "there is no /dev/nvidia0: load NVIDIA's driver, or set GPU_FILES"
  for name in $FILES; do
    [ ! -e "$SLURM_FOLDER/$name" ] || fail "$SLURM_FOLDER/$name is there already: nothing was written." \
      "docs/slurm.md says which lines an existing Slurm needs"
  done
  [ -d "$STATE_FOLDER" ] || install -d -m 0700 -o "$SLURM_USER" "$STATE_FOLDER"
  mkdir -p "$ours"
  slurm_conf $# >"$SLURM_FOLDER/slurm.conf"
  [ $# -eq 1 ] && flags= || flags=Flags=all_sharing
  gres_conf "$flags" >"$SLURM_FOLDER/gres.conf"
  install -m 0644 "$here/job_submit.lua" "$SLURM_FOLDER"
  install -m 0644 "$here/advisor.conf" "$here/advisor.lua" "$ours"
  install -m 0755 "$here/prolog.sh" "$here/epilog.sh" "$here/task_prolog.sh" "$ours"
  install -m 0600 "$here/agent.env" "$ours"
  sed "s|@RUN_FOLDER@|$RUN_FOLDER|; s|@MPS_CONTROL@|$control|; s|@ADVISOR@|$ADVISOR|; s|@USERS@|$USERS|" \
    "$here/mps.sh" >"$ours/mps.sh"
  sed "s|@ADVISOR@|$ADVISOR|; s|@USER@|$SLURM_USER|; s|@FOLDER@|$ours|" "$here/advisor-slurm-match.service" \
    >"$ours/advisor-slurm-match.service"
  (cd "$SLURM_FOLDER" && sha256sum $FILES) >"$list"
  [ -n "$ADVISOR" ] || echo "the program advisor is missing: no job will share"
  echo "written to $SLURM_FOLDER. Start it: systemctl restart munge slurmctld slurmd"
  case $address in 127.*) ;; *) echo "It listens on $address, for which $(hostname) stands: other hosts reach it" ;; esac
  echo "and the matcher that picks partners: systemctl enable --now $ours/advisor-slurm-match.service"
}

remove_files() {
  [ -e "$list" ] || fail "$list is missing: these files are not of setup.sh, nothing was removed"
  left=
  for name in $FILES; do
    [ -e "$SLURM_FOLDER/$name" ] || continue
    # Without gres.conf the GPUs of a slurm.conf that stays would be missing.
    [ "$name" != gres.conf ] || [ ! -e "$SLURM_FOLDER/slurm.conf" ] || continue
    if grep " $name\$" "$list" | (cd "$SLURM_FOLDER" && sha256sum --check --status); then
      rm "$SLURM_FOLDER/$name"
    else
      left="$left $SLURM_FOLDER/$name"
    fi
  done
  [ ! -e "$SLURM_FOLDER/job_submit.lua" ] || cp "$here/advisor.lua" "$ours" # which it reads
  [ ! -e "$SLURM_FOLDER/slurm.conf" ] || leave_us_out
  rm "$list"
  rmdir "$ours" 2>/dev/null || true
  [ -z "$left" ] || fail "left, since they were changed:$left"
  echo "removed from $SLURM_FOLDER. Stop it: systemctl stop slurmctld slurmd"
}

# A slurm.conf that stays starts without what was removed.
leave_us_out() {
  [ -e "$SLURM_FOLDER/job_submit.lua" ] && plugin= || plugin='s/^JobSubmitPlugins=lua$/# &/'
  sed -E -i "s#^(Prolog|Epilog|TaskProlog)=$ours/.*#\# &#; $plugin" "$SLURM_FOLDER/slurm.conf"
}

case ${1:-} in
  install) install_files ;;
  remove) remove_files ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
