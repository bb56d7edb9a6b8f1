# PID 1 of a machine: mounts what a system needs, leaves everything of the host behind and becomes systemd.
# Arguments: the directory of this machine (with upper, work, root, boot_id, console and notify), and the Debian root.
machine=$1 debian=$2 root=$1/root

# The procfs of the host is still in place, so this is the id that the host knows.
read -r pid _ </proc/self/stat
echo "$pid" >"$machine/pid"

mount -t overlay -o "lowerdir=$debian,upperdir=$machine/upper,workdir=$machine/work" overlay "$root"
mount -t proc proc "$root/proc"
# Only the sysctls of the network belong to this machine: all others are those of the host.
mount --bind "$root/proc/sys" "$root/proc/sys"
mount --bind "$root/proc/sys/net" "$root/proc/sys/net"
mount --bind "$machine/boot_id" "$root/proc/sys/kernel/random/boot_id"
mount -o remount,bind,ro "$root/proc/sys"
if [ -e "$root/proc/sysrq-trigger" ]; then
    mount --bind /dev/null "$root/proc/sysrq-trigger"
fi
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for node in null zero full random urandom tty; do
    touch "$root/dev/$node"
    mount --bind "/dev/$node" "$root/dev/$node"
done
mkdir "$root/dev/pts" "$root/dev/shm" "$root/run/host"
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts"
mount -t tmpfs tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
touch "$root/dev/console" "$root/run/host/notify"
mount --bind "$machine/console" "$root/dev/console"
mount --bind "$machine/notify" "$root/run/host/notify"

ip link set lo up
hostname booted
# systemd expects the root to be shared, as it is on other machines: it mounts credentials of units from aside.
mkdir "$root/run/host/old"
cd "$root"
pivot_root . run/host/old
exec env -i container=homeostat NOTIFY_SOCKET=/run/host/notify PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    chroot . sh -ec 'umount -l /run/host/old; rmdir /run/host/old; mount --make-rshared /; exec /lib/systemd/systemd --log-target=console --log-level=notice --show-status=no' \
    </dev/console >/dev/console 2>&1
