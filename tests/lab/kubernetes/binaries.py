# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The programs of Kubernetes, compiled once from Debian's source package.

Debian 12 has the source of all of Kubernetes 1.20, with what it imports, and binary packages of ``kubectl`` alone; newer
releases have no more of the source than that. The compiler is Go 1.15 of Debian 11, which was current when 1.20 appeared: built
with Go 1.18 or newer, kube-apiserver dies at the first merge PATCH (the reflect2 that it brings is too old).
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from lab import apt, entering, host, images
from lab.build import Build

VERSION = "v1.20.2"
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet", "kubectl")

_SOURCE = ("bookworm", "kubernetes")
_COMPILER = ("bullseye", ("golang-1.15-go", "dpkg-dev", "xz-utils"))
_TREE = "/build/src/k8s.io/kubernetes"
_ENVIRONMENT = {
    "PATH": "/usr/lib/go-1.15/bin:/usr/bin:/bin",
    "HOME": "/build",
    "GOPATH": "/build",
    "GO111MODULE": "off",
    "CGO_ENABLED": "0",
    "GOGC": "400",  # a compiler lives for seconds, and collects its garbage for a fifth of them
}
# Without the code of clouds and of docker, which no node of a lab calls: a third of all packages.
_TAGS = "providerless,dockerless"
_VERSIONED = "k8s.io/kubernetes/vendor/k8s.io/component-base/version"
_FLAGS = " ".join(
    ["-s -w"]  # no debugging information: a third of the size
    + [f"-X {_VERSIONED}.{name}={value}" for name, value in (("gitVersion", VERSION), ("gitMajor", "1"), ("gitMinor", "20"))]
)
_GENERATED = "k8s.io/kubernetes/pkg/generated/openapi"
_MARK = re.compile(rb"^\s*// \+k8s:openapi-gen=", re.MULTILINE)
_RECIPE = 1  # part of the key: raise it when the results of the commands below change


def folder() -> Path:
    """The folder of PROGRAMS, 450 MB. The first call on a machine compiles them: a download of 35 MB, 4 minutes of CPU time."""
    made_of = repr((_RECIPE, _SOURCE, _COMPILER, sorted(_ENVIRONMENT.items()), _TAGS, _FLAGS, PROGRAMS))
    target = images.cache() / "kubernetes" / f"{VERSION}-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}"
    return images.made_once(target, _compile)


def _compile(place: Path) -> None:
    """Compile PROGRAMS into the folder. The compiler and the source, 2 GB, are removed at the end."""
    place.mkdir()
    log = place / "log"
    _say(f"downloading the source of Kubernetes {VERSION}")
    source = apt.source(*_SOURCE, place / "source")
    root = Build(images.root(*_COMPILER), place / "root")
    root.copy_in(source.parent, "/source")
    unpack = f"mkdir -p {os.path.dirname(_TREE)} /build/bin && dpkg-source --extract /source/{source.name} {_TREE}"
    _run(root, log, ["sh", "-c", unpack])
    _generate_openapi(root, log)
    _say(f"compiling {', '.join(PROGRAMS)}: 4 minutes of CPU time, once; kept in {place.parent} (log: {log})")
    commands = [f"k8s.io/kubernetes/cmd/{name}" for name in PROGRAMS]
    _run(root, log, ["go", "build", "-v", "-tags", _TAGS, "-ldflags", _FLAGS, "-o", "/build/bin/", *commands])
    for name in PROGRAMS:
        (root.changes / "build/bin" / name).rename(place / name)
    for folder in ("source", "root"):
        images.remove_tree(place / folder)


def _generate_openapi(root: Build, log: Path) -> None:
    """kube-apiserver imports a package that is generated from comments in the source."""
    _say("generating the OpenAPI definitions of Kubernetes")
    _run(root, log, ["go", "build", "-o", "/build/openapi-gen", "k8s.io/kubernetes/vendor/k8s.io/kube-openapi/cmd/openapi-gen"])
    inputs = ",".join(sorted(_marked(root.changes / _TREE[1:])))
    header = f"{_TREE}/hack/boilerplate/boilerplate.generatego.txt"
    result = ["-p", _GENERATED, "-O", "zz_generated.openapi", "--output-base", "/build/src"]
    generate = ["/build/openapi-gen", "-i", inputs, *result, "-h", header, "-r", "/build/violations"]
    _run(root, log, generate, cwd=_TREE)  # the generator finds vendor/ from there


def _marked(tree: Path) -> Iterator[str]:
    """The import paths of packages with a mark for the generator; ``staging`` is imported by links in ``vendor``."""
    for part in ("cmd", "pkg", "plugin", "staging/src"):
        for path in (tree / part).rglob("*.go"):
            if not path.name.startswith("zz_generated") and _MARK.search(path.read_bytes()):
                package = str(path.parent.relative_to(tree))
                yield f"k8s.io/kubernetes/{re.sub('^staging/src/', 'vendor/', package)}"


def _run(root: Build, log: Path, argv: Sequence[str], cwd: str = "/") -> None:
    inside = ["env", "-i", f"--chdir={cwd}", *(f"{name}={value}" for name, value in _ENVIRONMENT.items()), *argv]
    host.build(root.around(["chroot", str(root.root), *inside]), log, "build Kubernetes", env=entering.ENVIRONMENT)


def _say(text: str) -> None:
    print(f"lab: {text} ...", flush=True)
