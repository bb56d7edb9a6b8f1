"""Holds what the simulator really answers against the published types of the answers."""

import json
import re
import ssl
import urllib.parse
import urllib.request

# What stands for the variable parts of a path.
PARTS = {"lxc": {"node": "pve1", "vmid": "101"}, "qemu": {"node": "pve1", "vmid": "201"}}


def interfaces(text):
    """The published types: a name, and its fields with type and whether each must be there."""
    found = {}
    for name, body in re.findall(r"export interface (\w+) \{(.*?)\n    \}", text, re.S):
        body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
        fields = re.findall(r"^        '?([\w\-]+)'?(\??): (.+);$", body, re.M)
        found[name] = {field: (kind, optional == "") for field, optional, kind in fields}
    return found


def judge(server, requests, published, types):
    """Asks for everything that can be read, and names every answer that has not its type."""
    ask = asker(server)
    task = ask("POST", "/nodes/pve1/lxc/101/status/start")
    wrong, judged = [], 0
    for request in (one for one in requests if one["method"] == "GET"):
        name = published["GET", request["path"]][1]
        kind = types.get(name.removesuffix("[]"))
        if kind is None:
            continue
        parts = PARTS["qemu" if "/qemu" in request["path"] else "lxc"]
        path = request["path"].format(**parts, upid=urllib.parse.quote(task, safe=""))
        answer = ask("GET", path + ("?source=all" if path.endswith("/tasks") else ""))
        rows = answer if name.endswith("[]") else [answer]
        if not rows:
            wrong.append(f"{path} answers nothing that could be judged")
        judged += 1
        wrong += [f"{path}: {why}" for row in rows for why in misfits(row, kind)]
    print(f"{judged} answers have their published types")
    return wrong


def asker(server):
    """A way to ask, by nobody's library but Python's own."""
    address, token, _ = server
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE

    def ask(method, path):
        headers = {"Authorization": f"PVEAPIToken={token}"}
        url = f"https://{address}/api2/json{path}"
        request = urllib.request.Request(url, method=method, headers=headers)
        with urllib.request.urlopen(request, context=trust, timeout=20) as answer:
            return json.loads(answer.read())["data"]

    return ask


def misfits(row, kind):
    for field, (expected, is_required) in kind.items():
        if field not in row:
            if is_required:
                yield f"{field} is missing"
        elif not fits(row[field], expected):
            yield f"{field} is {row[field]!r}, and should be {expected}"


def fits(value, expected):
    if expected == "string" or expected.startswith("'"):
        return isinstance(value, str)
    if expected == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if expected == "boolean":
        return value in (0, 1)
    return True
