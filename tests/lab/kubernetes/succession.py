# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node of a cluster that azure-vnet serves in bridge mode, and then Cilium.

Neither runs here. A CNI plugin of the lab stands for both, by the name under which it is called, and the container runtime calls
it for real pods:

azure-vnet  the pod's link is a port of azure0, as eth0 is; adds the rules, the neighbour and the entry in the state file that
            azure-vnet adds, and removes them with the pod
cilium-cni  the pod's link is routed, without BPF; knows nothing of azure-vnet's rules

Both take addresses out of one small range in turn, as both use Azure's, so that another pod soon has the same address. Unlike
azure-vnet's pods, these have the node as their router. IPv4 only.
"""

from __future__ import annotations

import json
from typing import Any

from lab import azure_vnet, cilium
from lab.azure_bridge import enslave
from lab.azure_vnet import BRIDGE, CILIUM, CONFLIST, STATE
from lab.kubernetes.pod_network import PLUGINS
from lab.node import ClusterNode

ADDRESSES = 6  # of pods
_FIRST = 10

_PLUGIN = """\
#!/usr/bin/python3
import base64
import fcntl
import json
import os
import subprocess
import sys

def run(*words, check=True):
    return subprocess.run(words, check=check, stdout=sys.stderr)

def ipam():
    done = subprocess.run(["@PLUGINS@/host-local"], input=json.dumps(network), stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(print(done.stdout) or done.returncode)
    return json.loads(done.stdout or "null")

def state():
    try:
        with open("@STATE@") as file:
            return json.load(file)
    except FileNotFoundError:
        return network["state"]

def endpoints(known):
    return known["Network"]["ExternalInterfaces"]["eth0"]["Networks"]["azure"]["Endpoints"]

def write(known):
    with open("@STATE@.new", "w") as file:
        json.dump(known, file)
    os.rename("@STATE@.new", "@STATE@")

def remember(address, mac):
    run("ip", "neighbour", "replace", address, "lladdr", mac, "nud", "permanent", "dev", "@BRIDGE@")
    for rule in network["rules"]:
        run("ebtables-nft", *rule.format(address=address, mac=mac).split())
    pod = dict(pair.split("=", 1) for pair in os.environ.get("CNI_ARGS", "").split(";") if "=" in pair)
    known = state()
    endpoints(known)[key] = {
        "Id": key,
        "HostIfName": link,
        "MacAddress": base64.b64encode(bytes.fromhex(mac.replace(":", ""))).decode(),
        "IPAddresses": [{"IP": address, "Mask": "//8AAA=="}],
        "PODName": pod.get("K8S_POD_NAME", ""),
        "PODNameSpace": pod.get("K8S_POD_NAMESPACE", ""),
        "ContainerID": container,
    }
    write(known)

def forget():
    known = state()
    entry = endpoints(known).pop(key, None)
    if entry:
        address, mac = entry["IPAddresses"][0]["IP"], base64.b64decode(entry["MacAddress"]).hex(":")
        run("ip", "neighbour", "del", address, "dev", "@BRIDGE@", check=False)
        for rule in network["rules"]:
            run("ebtables-nft", *rule.replace(" -A ", " -D ").format(address=address, mac=mac).split(), check=False)
        write(known)

def add():
    given = ipam()["ips"][0]
    address, router = given["address"].split("/")[0], given["gateway"]
    mac = ("a2:96:" if is_azure else "ae:96:") + bytes.fromhex(container[:8]).hex(":")
    run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "address", mac, "netns", namespace)
    if is_azure:
        run("ip", "link", "set", link, "master", "@BRIDGE@", "addrgenmode", "none", "up")
        remember(address, mac)
    else:
        run("ip", "link", "set", link, "up")
        run("ip", "address", "add", router + "/32", "dev", link)
        run("ip", "route", "replace", address + "/32", "dev", link)
    for line in (f"address add {address}/32 dev eth0", "link set eth0 up", f"route add {router} dev eth0",
                 f"route add default via {router}"):
        run("ip", "-n", namespace, *line.split())
    return {
        "cniVersion": network["cniVersion"],
        "interfaces": [{"name": link}, {"name": "eth0", "mac": mac, "sandbox": os.environ["CNI_NETNS"]}],
        "ips": [{"version": "4", "address": address + "/32", "gateway": router, "interface": 1}],
        "routes": [{"dst": "0.0.0.0/0", "gw": router}],
    }

if os.environ["CNI_COMMAND"] == "VERSION":
    sys.exit(print(json.dumps({"cniVersion": "0.3.1", "supportedVersions": ["0.3.1"]})))
network = json.load(sys.stdin)
is_azure = os.path.basename(sys.argv[0]) == "azure-vnet"
container = os.environ["CNI_CONTAINERID"]
namespace = os.path.basename(os.environ.get("CNI_NETNS", ""))
key = container[:8] + "-eth0"
link = "azv" + container[:11] if is_azure else "lxc" + container[:12]
with open("/run/pods.lock", "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    if os.environ["CNI_COMMAND"] == "ADD":
        print(json.dumps(add()))
    elif os.environ["CNI_COMMAND"] == "DEL":
        if is_azure:
            forget()
        if namespace:
            run("ip", "-n", namespace, "link", "del", "eth0", check=False)
        ipam()
"""


def serve_by_azure_vnet(node: ClusterNode) -> None:
    """From now on azure-vnet connects the node's pods; its bridge has the node's address."""
    mac = node.place.mac()
    enslave(node)
    node.ip([f"address add {_router(node)}/24 dev {BRIDGE}"])
    azure_vnet.ebtables(node, azure_vnet.node_rules(mac, node.ipv4))
    settings = {
        "mode": "bridge",
        "state": json.loads(azure_vnet.state_text(mac, [])),
        "rules": azure_vnet.pod_rules("{address}", "{mac}"),
    }
    _install(node, "azure-vnet", CONFLIST, settings)


def serve_by_cilium(node: ClusterNode) -> None:
    """From now on Cilium connects the node's pods; those of azure-vnet live on."""
    cilium.start(node)
    _install(node, "cilium-cni", CILIUM, {})


def _install(node: ClusterNode, kind: str, path: str, settings: dict[str, Any]) -> None:
    plugin = _PLUGIN.replace("@PLUGINS@", PLUGINS).replace("@STATE@", STATE).replace("@BRIDGE@", BRIDGE)
    node.write(f"{PLUGINS}/{kind}", plugin, 0o755)
    configuration = {"cniVersion": "0.3.1", "name": "pods", "plugins": [{"type": kind, "ipam": _ipam(node), **settings}]}
    node.write(f"{path}.new", json.dumps(configuration, indent=2), 0o600)
    node.run(["mv", f"{path}.new", path])  # the runtime reads either the old or the new file


def _ipam(node: ClusterNode) -> dict[str, Any]:
    subnet = node.place.pod_subnet_ipv4
    first, last = (f"{subnet.removesuffix('0/24')}{number}" for number in (_FIRST, _FIRST + ADDRESSES - 1))
    span = {"subnet": subnet, "rangeStart": first, "rangeEnd": last, "gateway": _router(node)}
    return {"type": "host-local", "ranges": [[span]], "dataDir": "/run/azure-ipam"}


def _router(node: ClusterNode) -> str:
    return node.place.pod_subnet_ipv4.removesuffix("0/24") + "1"
