# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages, units and files that make a node a worker of a cluster.

Units lie in a folder that a node sees read-only, so that they are there at every boot, the first one included.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from lab.kubernetes import pod_images
from lab.kubernetes.control_plane import DUAL_STACK
from lab.kubernetes.pod_network import PLUGINS

PACKAGES = ("containerd", "runc", "containernetworking-plugins", "conntrack", "iptables", "ebtables", "ethtool", "ipset", "socat")
PROGRAMS, SETTINGS, UNITS = "/opt/kubernetes", "/etc/kubernetes", "/usr/local/lib/systemd/system"
"""Folders of a node: the programs of Kubernetes, their configuration, and units (systemd.unit(5))."""

EXTRA = "/etc/default/kubelet"
"""Where a node's owner gives kubelet more options, as with kubeadm's packages: KUBELET_EXTRA_ARGS."""

CONTAINERD = "/run/containerd/containerd.sock"

_GATES = {"IPv6DualStack": True}

# Limits and priorities that need CAP_SYS_RESOURCE are left as they are: a node may lack it.
_CONTAINERD_UNIT = f"""\
[Service]
OOMScoreAdjust=0
ExecStart=
ExecStart=/usr/bin/containerd --config {SETTINGS}/containerd.toml
"""
_CONTAINERD = f"""\
version = 2
oom_score = 0
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pod_images.PAUSE}"
  restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "native"  # overlay does not lie on a container's overlay
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  options.BinaryName = "{SETTINGS}/runc"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{PLUGINS}"
"""
_RUNC = """\
#!/usr/bin/python3
\"\"\"runc, without limits: a host that mounts both versions of cgroup leaves this node no controller to set them with.\"\"\"
import json
import os
import sys

if "create" in sys.argv:
    path = os.path.join(sys.argv[sys.argv.index("--bundle") + 1], "config.json")
    with open(path) as file:
        container = json.load(file)
    container["linux"]["resources"] = {"devices": container["linux"].get("resources", {}).get("devices", [])}
    with open(path, "w") as file:
        json.dump(container, file)
os.execvp("runc", ["runc", *sys.argv[1:]])
"""

_KUBELET_UNIT = f"""\
[Unit]
Description=kubelet
Wants=containerd.service
After=containerd.service
[Service]
EnvironmentFile=-{EXTRA}
ExecStartPre=/bin/sh {SETTINGS}/keep-kernel-settings
ExecStart={PROGRAMS}/kubelet --config={SETTINGS}/kubelet.json --kubeconfig={SETTINGS}/kubeconfig.json \\
  --container-runtime=remote --container-runtime-endpoint=unix://{CONTAINERD} --node-ip=@ADDRESSES@ \\
  $KUBELET_EXTRA_ARGS
Restart=always
RestartSec=1
"""
_KUBELET = {
    "kind": "KubeletConfiguration",
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "featureGates": _GATES,
    "nodeStatusUpdateFrequency": "2s",  # readiness is reported soon
    "resolvConf": f"{SETTINGS}/resolv.conf",
    "oomScoreAdj": 0,
    "failSwapOn": False,
    # A node of the lab has no cgroup controllers to delegate.
    "cgroupDriver": "cgroupfs",
    "cgroupsPerQOS": False,
    "enforceNodeAllocatable": [],
    "cpuCFSQuota": False,
    # The disk is the machine's own: however full it is, pods stay and images are kept.
    "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1Mi", "nodefs.inodesFree": "1", "imagefs.available": "1Mi"},
    "imageGCHighThresholdPercent": 100,
}

# kubelet sets these (setupKernelTunables in pkg/kubelet/cm/container_manager_linux.go), and they are the whole machine's. It sets
# none that has its value already, so a node shows kubelet files that have these values.
_KERNEL_SETTINGS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}

# Conntrack's sizes are the whole machine's too; 0 keeps them. kube-proxy holds a socket open for each node port: with the 1,024
# files of systemd's default it cannot start iptables-restore after 990 of them.
_PROXY_UNIT = f"""\
[Unit]
Description=kube-proxy
[Service]
ExecStart={PROGRAMS}/kube-proxy --kubeconfig={SETTINGS}/kubeconfig.json --proxy-mode=@MODE@ {DUAL_STACK} --oom-score-adj=0 \\
  --conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0
LimitNOFILE=16384
Restart=always
RestartSec=1
"""

ProxyMode = Literal["iptables", "ipvs"]


def proxy_unit(mode: ProxyMode = "iptables") -> str:
    """kube-proxy.service; the mode ipvs needs ip_vs and dummy of the node's kernel."""
    return _PROXY_UNIT.replace("@MODE@", mode)


def prepare(folder: Path, kubeconfig: str, addresses: tuple[str, str]) -> None:
    """Write all that a node with these addresses, one of each family, reads of ``folders(folder, ...)``."""
    units = {
        "containerd.service.d/lab.conf": _CONTAINERD_UNIT,
        "kubelet.service": _KUBELET_UNIT.replace("@ADDRESSES@", ",".join(addresses)),
        "kube-proxy.service": proxy_unit(),
    }
    settings = {
        "containerd.toml": _CONTAINERD,
        "kubelet.json": json.dumps(_KUBELET, indent=2),
        "kubeconfig.json": kubeconfig,
        "keep-kernel-settings": _keep_kernel_settings(),
        "resolv.conf": "options attempts:1\n",  # a pod needs one, and there is no name to resolve
        "runc": _RUNC,
    }
    _write(folder / "units", units)
    _write(folder / "settings", settings)
    (folder / "settings/runc").chmod(0o755)
    wanted = folder / "units/multi-user.target.wants"
    wanted.mkdir()
    for name in ("kubelet.service", "kube-proxy.service"):
        (wanted / name).symlink_to(f"../{name}")
    (folder / "units/e2scrub_reap.service").symlink_to("/dev/null")  # would wait ten seconds at each boot for missing disks


def folders(folder: Path, programs: Path) -> dict[str, Path]:
    """Make the folders that prepare() fills; returns the paths at which a node sees them, and the programs."""
    paths = {UNITS: folder / "units", SETTINGS: folder / "settings"}
    for made in paths.values():
        made.mkdir(parents=True)
    return {**paths, PROGRAMS: programs}


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def _keep_kernel_settings() -> str:
    lines = [f"keep {name} {value}" for name, value in _KERNEL_SETTINGS.items()]
    keep = """\
set -eu
keep() {
  shown=/run/kernel-settings/$1
  [ ! -e "$shown" ] || return 0
  mkdir -p "${shown%/*}"
  echo "$2" > "$shown"
  mount --bind "$shown" "/proc/sys/$1"
}
"""
    return "\n".join([keep, *lines, ""])
