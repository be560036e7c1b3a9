# What the control program does where FAKE_MPS is 3: NVIDIA's "MPS v3 Interface", release 615.
#
# A namespace is a folder `SERVER/NAME`, which is the pipe directory of its clients: what they read
# and write there are links to the files of the daemon's own. `percentage` and `memory` are its limits,
# above which no variable of a client comes. `status` is the server's. A test
# breaks it by files in the daemon's folder: `refuse` (its daemon does not start), `refuse-namespace`,
# `refuse-set`, `die` (the server, when it has made a namespace) and `gives`, which is given in the place
# of every percentage. The words of errors and the exit codes are made up: no document has them.

fail() {
  echo "Error: $1" >&2
  exit 1
}

# The value of --$1=VALUE among the other words, into `word`; $1 where there is none.
option() {
  name=$1
  shift
  word=
  for each; do
    case $each in --"$name"=*) word=${each#*=} && return ;; esac
  done
  return 1
}

make_namespace() {
  mkdir -p "$1" || exit 1
  for file in status clients; do
    ln -s "$PIPE/$file" "$1/$file"
  done
  # Without its server a client has no MPS.
  ln -s "$SERVER" "$1/nvidia-cuda-mps-control.pid"
  : > "$1/percentage"
}

end_server() {
  alive "$SERVER" && kill -KILL "$word"
  while alive "$SERVER"; do sleep 0.01; done
}

create_server() {
  write_sleeper "$SERVER"
  make_namespace "$PIPE/$1/default"
  option allowed-devices "$@" && printf %s "$word" > "$PIPE/devices"
  # One without any GPU that is there is accepted, and dies.
  case ,$FAKE_CUDA_UUIDS, in *,"$word",*) ;; *) end_server ;; esac
}

list_servers() {
  alive "$SERVER" || return
  pid=$word
  read_word "$PIPE/status" Ready
  for folder in "$PIPE"/*/default; do
    folder=${folder%/default}
    echo "${folder##*/},$(id -u),$pid,$word,$folder,$(cat "$PIPE/devices"),-"
  done
}

set_limits() {
  folder=$1
  shift
  if option active-thread-percentage "$@"; then
    case $word in 0 | -* | *[!0-9.]*) fail "active thread percentage is 1-100" ;; esac
    given=$word
    read_word "$PIPE/gives" "$given"
    printf %s "$word" > "$folder/percentage"
  fi
  option pinned-memory-limit "$@" && printf %s "$word" > "$folder/memory"
  return 0
}

namespace() {
  verb=$1 folder=
  case $verb in
    get) folder=$PIPE/$3/$2 ;;
    *) option server "$@" && folder=$PIPE/$word/$2 ;;
  esac
  alive "$SERVER" || fail "server not found"
  if [ "$verb" = create ]; then
    [ -e "$PIPE/refuse-namespace" ] && fail "namespace '$2' was not created"
    case $2 in '' | *[!a-z0-9_]*) fail "invalid namespace name '$2'" ;; esac
    [ -e "$folder" ] && fail "namespace '$2' exists"
    make_namespace "$folder"
    [ -e "$PIPE/die" ] && end_server
    return 0
  fi
  [ -d "$folder" ] || fail "namespace '$2' not found"
  case $verb in
    set)
      [ -e "$PIPE/refuse-set" ] && fail "the limits cannot be set"
      for pid in $(list_clients); do
        read_word "$CLIENTS/$pid"
        [ "$word" = "$2" ] && fail "namespace '$2' has active clients"
      done
      set_limits "$folder" "$@"
      ;;
    delete) rm -r "$folder" ;;
    get)
      case $4 in
        active-thread-percentage) read_word "$folder/percentage" 100 && printf '%.2f\n' "$word" ;;
        pinned-memory-limit) read_word "$folder/memory" - && echo "$word" ;;
        *) fail "unknown field '$4'" ;;
      esac
      ;;
    *) fail "unknown verb '$verb'" ;;
  esac
}

list_rows() {
  option server "$@" && server=$word
  for pid in $(list_clients); do
    read_word "$CLIENTS/$pid" default
    echo "$pid,$server,$(cat "$PIPE/devices"),$server/$word (0),$(tr '\0' ' ' < "/proc/$pid/cmdline")"
  done
}

modules() {
  echo "Usage: $0 <module> <verb> [arguments]"
  echo "Modules: server, namespace, client, device, sm-partition, feature, memacct, context-share"
}

if [ "$1 $2 $3" = "-p 3 -h" ]; then
  modules
  exit
fi
if [ "$1" = -d ]; then
  start
  : > "$PIPE/protocol3"
  echo "To connect CUDA applications to this daemon, set CUDA_MPS_PIPE_DIRECTORY=$PIPE"
  exit
fi
if ! alive "$PID_FILE"; then
  echo "Cannot find MPS control daemon process" >&2
  exit 1
fi
[ -e "$PIPE/hang" ] && exec sleep 60
module=$1
shift
case "$module $1" in
  "server create") shift && create_server "$@" ;;
  "server list") list_servers ;;
  "server set") shift && set_limits "$PIPE/$1/default" "$@" ;;
  namespace\ *) namespace "$@" ;;
  "client list") list_rows "$@" ;;
  "client terminate") mv "$CLIENTS/$2" "$CLIENTS/$2.terminated" ;;
  "-q ")
    quit
    for folder in "$PIPE"/*/default; do
      [ -d "$folder" ] && rm -r "${folder%/default}"
    done
    ;;
  *) fail "unknown command '$module $*'" ;;
esac
exit 0
