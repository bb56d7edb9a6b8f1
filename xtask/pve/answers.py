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


# What is changed, and what it is about: the least that any change needs.
CHANGE = {"description": "judged"}


def judge_changes(server, published):
    """Changes a configuration in every way there is, and names every answer that is not as published."""
    ask = asker(server)
    wrong = []
    for method, kind in (("PUT", "lxc"), ("PUT", "qemu"), ("POST", "qemu")):
        path = f"/nodes/{{node}}/{kind}/{{vmid}}/config"
        expected, answer = published[method, path][1], ask(method, path.format(**PARTS[kind]), CHANGE)
        if not (answer is None if expected == "null" else fits(answer, expected)):
            wrong.append(f"{method} {path} answers {answer!r}, and should answer {expected}")
    return wrong


def judge_interfaces(server, text):
    """Sets interfaces with everything they can have, and names those that are not printed as the published
    format says: the key that needs no name first, then those that must be there, then the rest by name."""
    ask = asker(server)
    wrong, judged = [], 0
    for form in formats(text):
        kind = "qemu" if "model" in form else "lxc"
        models = form["model"]["enum"] if "model" in form else [None]
        path = f"/nodes/{PARTS[kind]['node']}/{kind}/{PARTS[kind]['vmid']}/config"
        for model in models:
            sent, expected = interface(form, model)
            ask("PUT", path, {"net7": sent})
            found = ask("GET", path)["net7"]
            judged += 1
            if found != expected:
                wrong.append(f"{path}: {sent} becomes {found}, and should become {expected}")
    if judged < 10:
        wrong.append(f"only {judged} interfaces were judged: the form of the description has changed")
    print(f"{judged} interfaces are printed as published")
    return wrong


def formats(text):
    """The published formats of a container's interface, and of a machine's."""
    found = re.findall(r"^ *\* @format (\{.*\})\n *\*/\n *export type Tnet(?:_\d)? = string;$", text, re.M)
    return [json.loads(one) for one in found]


def interface(form, model):
    """An interface with a value for every key, in an order that nobody prints, and how it is printed."""
    address = "BC:24:11:00:00:07"
    known = {"hwaddr": address, "macaddr": address, "model": model, "type": "veth", "name": "eth7", "bridge": "vmbr0"}
    names = [name for name, about in form.items() if "alias" not in about]
    values = {name: known.get(name, "1") for name in names}
    sent = ",".join(f"{name}={values[name]}" for name in sorted(names, reverse=True))
    printed = []
    if model:
        printed.append(f"{values.pop('model')}={values.pop('macaddr')}")
    ordered = sorted(values, key=lambda name: (bool(form[name].get("optional")), name))
    return sent, ",".join(printed + [f"{name}={values[name]}" for name in ordered])


def asker(server):
    """A way to ask, by nobody's library but Python's own."""
    address, token, _ = server
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE

    def ask(method, path, form=None):
        headers = {"Authorization": f"PVEAPIToken={token}"}
        url = f"https://{address}/api2/json{path}"
        body = urllib.parse.urlencode(form).encode() if form else None
        request = urllib.request.Request(url, data=body, method=method, headers=headers)
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
