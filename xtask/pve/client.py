"""Drives a simulated cluster with proxmoxer, and checks what a user of it would see."""

import sys

import urllib3
from proxmoxer import ProxmoxAPI, ResourceException
from proxmoxer.tools import Tasks

urllib3.disable_warnings()
address, token, _ = sys.argv[1:]
user, secret = token.split("=", 1)
user, name = user.split("!", 1)
host, port = address.rsplit(":", 1)


def api(secret):
    return ProxmoxAPI(host, port=int(port), user=user, token_name=name, token_value=secret, verify_ssl=False)


def refused(call, *words):
    try:
        call()
    except ResourceException as error:
        for word in words:
            assert word in str(error), f"{word!r} is not in {error}"
        return
    raise AssertionError(f"not refused: {words}")


cluster = api(secret)
assert cluster.version.get()["release"]
nodes = {node["node"]: node["status"] for node in cluster.nodes.get()}
assert nodes == {"pve1": "online", "pve2": "online"}, nodes
guests = {guest["vmid"]: guest["status"] for guest in cluster.nodes("pve1").lxc.get()}
assert guests == {101: "stopped"}, guests
assert [one["vmid"] for one in cluster.cluster.resources.get(type="vm")] == [101, 102, 201]

guest = cluster.nodes("pve1").lxc(101)
task = guest.status.start.post()
assert task.startswith("UPID:pve1:"), task
ended = Tasks.blocking_status(cluster, task, timeout=20, polling_interval=0.05)
assert ended["status"] == "stopped" and ended["exitstatus"] == "OK", ended
assert Tasks.decode_upid(task)["type"] == "vzstart", task
assert guest.status.current.get()["status"] == "running"
refused(guest.status.start.post, "already running", "500")
listed = cluster.nodes("pve1").tasks.get(source="all", vmid=101)
assert [one["upid"] for one in listed] == [task] and listed[0]["status"] == "OK", listed

before = guest.config.get()
assert before["memory"] == 512 and before["description"] == "web\n", before
assert guest.config.put(cores=2, tags="Web, blue", description="a\n\nb", digest=before["digest"]) is None
after = guest.config.get()
assert (after["cores"], after["tags"], after["description"]) == (2, "blue;web", "a\n\nb\n"), after
assert after["digest"] != before["digest"]
refused(lambda: guest.config.put(cores=4, digest=before["digest"]), "detected modified configuration")
refused(lambda: guest.config.put(cores="many"), "400", "Parameter verification failed")
refused(lambda: guest.config.put(nonsense=1), "400")
assert guest.config.put(nameserver="10.0.0.1,10.0.0.2") is None
rows = {row["key"]: row for row in guest.pending.get()}
assert rows["nameserver"]["pending"] == "10.0.0.1 10.0.0.2", rows["nameserver"]
assert "nameserver" not in guest.config.get(current=1) and "nameserver" in guest.config.get()
assert guest.config.put(delete="cores") is None
assert "cores" not in guest.config.get()

stopping = guest.status.shutdown.post(timeout=5, forceStop=1)
assert Tasks.blocking_status(cluster, stopping, timeout=20, polling_interval=0.05)["exitstatus"] == "OK"
refused(guest.status.stop.post, "not running")
machine = cluster.nodes("pve1").qemu(201)
assert machine.config.put(memory=768) is None
task = machine.config.post(memory=1024)
assert Tasks.decode_upid(task)["type"] == "qmconfig", task
assert Tasks.blocking_status(cluster, task, timeout=20, polling_interval=0.05)["exitstatus"] == "OK"
assert machine.config.get()["memory"] == "1024"
assert machine.config.post(memory=2048, background_delay=5) is None
assert machine.config.get()["memory"] == "2048" and machine.config.get(current=1)["memory"] == "512"
refused(lambda: machine.config.post(memory=4096, digest="0" * 40), "500", "detected modified configuration")
running = Tasks.blocking_status(cluster, machine.status.start.post(), timeout=20, polling_interval=0.05)
assert running["exitstatus"] == "VM 201 already running", running
refused(cluster.nodes("pve2").lxc(101).config.get, "does not exist")
refused(cluster.nodes("pve1").tasks("UPID:pve1:00000001:00000001:00000001:vzstart:1:x@pve:").status.get, "400", "no such task")
refused(cluster.nodes("pve3").lxc.get, "hostname lookup")
refused(api("wrong").nodes.get, "401")
print("proxmoxer is content")
