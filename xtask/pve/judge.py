"""Judges the simulated Proxmox VE by programs that are not ours.

First by proxmoxer, the client that people use: it drives the simulator over HTTPS as it would drive a
cluster. Then by the published description of the API, as the npm package `proxmox-api` carries it in typed
form: every request that the simulator answers must be in it, with every parameter and with what it returns, and
what it really answers must have the published fields and types, and print interfaces in the published order.

Both come from their registries, into a directory that is gone afterwards. Without a network this fails: what
was not judged is not known to be right.
"""

import io
import json
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import venv

sys.dont_write_bytecode = True
import answers

PROXMOXER = ["proxmoxer==2.3.0", "requests"]
DESCRIPTION = "https://registry.npmjs.org/proxmox-api/-/proxmox-api-1.1.1.tgz"
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CARGO = ["cargo", "run", "--quiet", "--locked", "-p", "homeostat-pve-simulator", "--example"]


def main():
    text = description()
    published, listed = requests_in(text), requests()
    compare(published, listed)
    with tempfile.TemporaryDirectory() as directory:
        python = install(pathlib.Path(directory))
        serve(lambda server: drive(python, server))
    types = answers.interfaces(text)
    wrong = serve(lambda server: answers.judge(server, listed, published, types))
    wrong += serve(lambda server: answers.judge_changes(server, published))
    wrong += serve(lambda server: answers.judge_interfaces(server, text))
    if wrong:
        sys.exit("\n".join(wrong))
    print("the simulator is as proxmoxer and the published description expect it")


def install(directory):
    """A Python with proxmoxer in it."""
    try:
        venv.create(directory, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"no pip, so the simulator was not judged; install python3-venv: {error}")
    python = directory / "bin" / "python"
    installed = subprocess.run([python, "-m", "pip", "install", "--quiet", *PROXMOXER])
    if installed.returncode != 0:
        sys.exit("proxmoxer cannot be had from PyPI: the simulator was not judged")
    return python


def serve(judge):
    """Lets somebody judge a fresh simulator, which lives as long."""
    serving = subprocess.Popen(CARGO + ["serve"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        line = serving.stdout.readline().decode().split()
        if len(line) != 3:
            sys.exit("the simulator does not start")
        return judge(line)
    finally:
        serving.stdin.close()
        serving.wait()


def drive(python, server):
    """Runs the client that people use."""
    client = pathlib.Path(__file__).with_name("client.py")
    if subprocess.run([python, client, *server]).returncode != 0:
        sys.exit("proxmoxer is not content with the simulator")


def requests():
    """The requests that the simulator answers, as it lists them."""
    listed = subprocess.run(CARGO + ["requests"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return [json.loads(line) for line in listed.stdout.decode().splitlines()]


def description():
    """The published description, as text."""
    try:
        archive = urllib.request.urlopen(DESCRIPTION, timeout=60).read()
    except OSError as error:
        sys.exit(f"the description of the API cannot be had from npm: {error}")
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        return files.extractfile("package/src/model.ts").read().decode()


def requests_in(text):
    """What is described: a request, its parameters, what it returns."""
    found = {}
    shape = re.compile(
        r"^ *\* (GET|PUT|POST|DELETE) (/\S+)\n(?:^ *\*[^\n]*\n)*?^ *\*/\n"
        r"^ *\$(?:get|put|post|delete)\((?:param\??: \{(.*)\})?\): Promise<(.*)>;$",
        re.M,
    )
    for method, path, parameters, returns in shape.findall(text):
        names = re.findall(r"(?:^|, )'?([\w\-\[\]]+)'?\??:", parameters.strip())
        found[method, path.replace("\\", "")] = (set(names), returns)
    return found


def compare(published, simulated):
    if len(published) < 400:
        sys.exit(f"only {len(published)} requests were found in the description: its form has changed")
    wrong = []
    for request in simulated:
        name = (request["method"], request["path"])
        if name not in published:
            wrong.append(f"{name} is not published")
            continue
        parameters, returns = published[name]
        for parameter in request["parameters"]:
            if parameter not in parameters and not is_indexed(parameter, parameters):
                wrong.append(f"{name} has no parameter {parameter}")
        if not is_kind(returns, request["returns"]):
            wrong.append(f"{name} returns {returns}, not {request['returns']}")
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{len(simulated)} requests are as published, of {len(published)}")


def is_indexed(parameter, published):
    stem = parameter.removesuffix("[n]")
    return parameter != stem and f"{stem}0" in published


def is_kind(published, simulated):
    if simulated == "null":
        return published == "null"
    if simulated == "string":
        return published in ("string", "string | null") or published.startswith("string")
    if simulated == "array":
        return published.endswith("[]")
    return not published.endswith("[]") and published not in ("null", "string")


if __name__ == "__main__":
    main()
