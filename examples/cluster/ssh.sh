#!/bin/sh
# A chief, a worker, two parameter servers and an evaluator on machines that ssh reaches.
#
#     CHIEF=host-a WORKER=host-b PS="host-c host-d" ./ssh.sh train.py --model_dir /shared/run
#
# Every machine has the program and this package, sees the folder of the model, and reaches the
# others' port 2222. Lines of a task go to TYPE-INDEX.log here. A task that fails is started again;
# servers and workers are stopped when the chief and the evaluator are done.
set -eu
FOLDER=${FOLDER:-.}  # of the program, on every machine
PROGRAM="$*"

addresses() {  # host... -> "host:2222","host:2222"
    printf '"%s:2222"\n' "$@" | paste -sd, -
}
# shellcheck disable=SC2086  # one word for each host
CLUSTER="{\"chief\": [$(addresses $CHIEF)], \"worker\": [$(addresses $WORKER)], \
\"ps\": [$(addresses $PS)]}"

run() {  # host type index
    config="{\"cluster\": $CLUSTER, \"task\": {\"type\": \"$2\", \"index\": $3}}"
    # -tt: the task gets SIGHUP when its ssh ends
    ssh -tt "$1" "cd $FOLDER && TF_CONFIG='$config' tpu-estimator-embedding run $PROGRAM" \
        < /dev/null >> "$2-$3.log" 2>&1 &
    connection=$!
    trap 'kill $connection; wait $connection; exit 143' TERM
    wait $connection
}

start() {  # host type index: until the task ends well
    until run "$@"; do
        echo "$2 $3 on $1 failed: restarting it in 5 seconds" >&2
        sleep 5
    done
}

tasks=
trap 'kill $tasks 2> /dev/null || :; wait || :' EXIT
trap 'exit 130' INT TERM
index=0; for host in $PS; do
    start "$host" ps $index & tasks="$tasks $!"; index=$((index + 1))
done
index=0; for host in $WORKER; do
    start "$host" worker $index & tasks="$tasks $!"; index=$((index + 1))
done
start "$CHIEF" evaluator 0 & evaluator=$!; tasks="$tasks $!"
start "$CHIEF" chief 0 & tasks="$tasks $!"
wait $!
wait $evaluator
