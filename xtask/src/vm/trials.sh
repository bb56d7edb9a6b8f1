# Two boots of one machine. In the first, the clock is set back a day in a trial, which ends in time all the same; then a
# trial is open when the power is cut. In the second, the daemon starts.
# The documents are on a disk of their own: what syncs them must not sync the state directory along.
modprobe -a virtio_pci virtio_blk
mkdir -p /documents /state
mount -t ext4 /dev/vda /documents
mount -t ext4 /dev/vdb /state
knob=/proc/sys/net/ipv4/tcp_retries1
homeostat() {
    /tests/homeostat "$@" --state-dir /state/homeostat
}
declare_value() {
    printf '[sysctl]\n"net.ipv4.tcp_retries1" = %s\n' "$1"
}
# Looks until a command succeeds; the machine that waits in vain is ended by its silence.
await() {
    until "$@"; do
        sleep 1
    done
}
has_value() {
    [ "$(cat "$knob")" = "$1" ]
}
history_has() {
    homeostat history | grep -q "$1"
}

if [ ! -e /documents/host.toml ]; then
    declare_value 6 >/documents/new.toml
    declare_value 5 >/documents/host.toml
    homeostat run /documents/host.toml &
    await history_has '^ *1  '

    homeostat apply --yes --confirm-within 20s /documents/new.toml &
    await has_value 6
    date -s "@$(($(date +%s) - 86400))"
    await history_has 'nobody confirmed it in time'
    has_value 5
    say "rolled back although the clock was set back"

    homeostat apply --yes --confirm-within 1h /documents/new.toml &
    await has_value 6
    dd if=/documents/new.toml of=/documents/host.toml conv=fsync
    say "trial open"
    # The power is cut meanwhile.
    sleep 3600
fi
homeostat run /documents/host.toml &
await has_value 5
await history_has 'the machine was booted'
grep -q '= 6' /documents/host.toml
homeostat status || true
say "confirmed document in force"
