#!/bin/busybox sh
# The first process of the virtual machine: mounts what tests expect, runs them, switches off.
# Until the results begin, complaints go to the console. A failure there ends this process, with it
# the kernel, and so the machine: the other side sees that the results never came.
set -eu
export PATH=/sbin:/bin:/usr/bin HOME=/root TMPDIR=/tmp
# What differs from one run to the next is the kernel, not the dice.
export PROPTEST_RNG_SEED=76

/bin/busybox mkdir -p /usr/bin
# Behind the real programs in the path: only what is missing is busybox's.
/bin/busybox --install -s /usr/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs run /run
mount -t cgroup2 cgroup /sys/fs/cgroup
echo "+cpu +cpuset +io +memory +pids +hugetlb" >/sys/fs/cgroup/cgroup.subtree_control
ip link set lo up
modprobe -a tun loop e1000e

# Temporary files need attributes of the user's own, which a tmpfs of this kernel does not have.
modprobe brd rd_nr=1 rd_size=131072
mke2fs /dev/ram0 >/dev/null
mount -t ext4 /dev/ram0 /tmp
chmod 1777 /tmp

# Results have a line of their own, so that no message of the kernel falls between them.
stty -F /dev/ttyS1 raw
say() {
    printf 'homeostat-vm: %s\n' "$*"
}
run() {
    name=$1
    shift
    say "start $name"
    status=0
    "/tests/$name" "$@" || status=$?
    # A test that aborts leaves its line without an end.
    echo
    say "end $name $status"
}
results() {
    cd /tmp
    say "kernel $(uname -r)"
    . /tests/script
    say "done"
}
results >/dev/ttyS1 2>&1 </dev/null
poweroff -f
