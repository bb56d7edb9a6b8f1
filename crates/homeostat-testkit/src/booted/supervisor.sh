# Boots a machine for each line on standard input, and prints a line when one is off. When the input ends, because the
# test is over or has died, it ends the machine and removes what is left of it.
# Arguments: the directory of the machine, the Debian root, the cgroup of the machine, and the script of its PID 1.
machine=$1 debian=$2 cgroup=$3 init=$4
mkdir "$cgroup"
while read -r _; do
    (
        echo 0 >"$cgroup/cgroup.procs"
        unshare --cgroup --pid --fork --kill-child --mount --uts --ipc --net --propagation private \
            sh -euc "$init" init "$machine" "$debian" 2>>"$machine/console" || true
        rm -f "$machine/pid"
        echo off
    ) </dev/null 2>/dev/null &
done
if [ -e "$machine/pid" ]; then
    # With PID 1 everything in the machine ends, and is reaped before PID 1 is.
    kill -KILL "$(cat "$machine/pid")" || true
else
    echo 1 >"$cgroup/cgroup.kill"
fi
wait
find "$cgroup" -depth -type d -exec rmdir {} +
rm -rf "$machine"
