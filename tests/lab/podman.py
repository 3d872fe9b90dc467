# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A podman of the lab's own: it shares no container, storage or state with the podman of the machine.

It lives in a mount namespace that a shell holds. The shell reads a pipe whose only write end is in the lab's process;
when that process is gone, also by SIGKILL, the shell removes all containers and their folder. Should the shell be
killed too, the next lab finds a folder that no process has locked and removes what is in it.
"""

from __future__ import annotations

import os
import resource
import secrets
import subprocess
from collections.abc import Iterable

import leftovers

from lab import entering, images
from lab.build import Build
from lab.entering import LabError

STORAGE = ["--root", "/mnt/store", "--runroot", "/mnt/run", "--tmpdir", "/mnt/tmp"]
"""podman's options for a storage in the folder that is mounted at /mnt."""
BUILD = ("build", "--isolation=chroot", "--network=host")
"""Builds an image without namespaces of its own, which a container that builds may not make."""

_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
_CONFIGURATION = f"""
# Without CAP_SYS_RESOURCE limits cannot be raised, and podman's defaults would; 0 is "no limit on processes". A program that
# asks for more files, as kube-proxy with a socket for each node port, gets what this process may have.
[containers]
pids_limit = 0
default_ulimits = ["nofile=1024:{_FILES}", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
"""

# Arguments: the folder of all labs, the name of this one, containers.conf. File descriptor 8 is held while folders are
# made, locked and judged; 9 as long as this lab lives, and by this shell alone.
# 120 s: containerd in a node copies an image for each pod, and podman removes all copies.
# /sys/fs/cgroup: crun refuses a host that mounts both versions of cgroup (hybrid: a tmpfs with mounts below). On an
# ordinary host it is cgroup2 itself and stays as it is.
# Each lab sees its folder as /mnt, in this namespace only: podman refuses run roots of more than 50 characters, and a lab that
# cleans up after another one must use the names in that lab's database.
_HOLDER = """
set -u
trap '' INT TERM HUP
cd "$1" || exit
remove() {  # NAME: the lab whose folder is at /mnt. Its cgroups lie in a parent that podman makes and does not remove
  timeout 120 podman @STORAGE@ rm --all --force --time 0 8>&- 9>&- < /dev/null > /dev/null || return
  find "/sys/fs/cgroup/@CGROUP@/$1" -depth -type d -exec rmdir {} + 2> /dev/null
  umount --lazy /mnt
  rm -rf --one-file-system "$1" 2> /dev/null || { sleep 1; rm -rf --one-file-system "$1"; }  # a process that ends may write
}
exec 8> .lock && flock 8 && mkdir "$2" && exec 9> "$2/lock" && flock --nonblock 9 || exit
printf %s "$3" > "$2/containers.conf"
export CONTAINERS_CONF="$PWD/$2/containers.conf"
if [ "$(stat --file-system --format %T /sys/fs/cgroup)" = tmpfs ]; then
  umount --recursive /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup || exit
fi
for other in */; do
  other=${other%/}
  [ "$other" != "$2" ] && flock --nonblock "$other/lock" true && mount --bind "$other" /mnt || continue
  remove "$other" || umount --lazy /mnt
done
mount --bind "$2" /mnt && exec 8>&- || exit
echo ready
cat > /dev/null
remove "$2"
""".replace("@STORAGE@", " ".join(STORAGE)).replace("@CGROUP@", leftovers.CGROUP)


class Podman:
    """Creates, starts and stops containers whose life ends with the lab's."""

    def __init__(self) -> None:
        labs = images.cache() / "containers"
        labs.mkdir(exist_ok=True)
        self._shared = images.cache() / "images"  # read by all labs, written by image() alone
        self.folder = labs / f"{os.getpid()}-{secrets.token_hex(4)}"
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", _HOLDER, "sh", labs, self.folder.name, _CONFIGURATION],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env=entering.ENVIRONMENT,
            start_new_session=True,  # Ctrl-C is for the lab; the holder tidies up after it
        )  # fmt: skip
        assert self._holder.stdout is not None
        said = ""  # also of another lab that cannot be removed
        while (line := self._holder.stdout.readline()) != "ready\n":
            if not line:
                raise LabError(f"podman's place could not be made: {said}")
            said += line

    def run(self, *arguments: str, stdin: int = subprocess.DEVNULL, timeout: float = 120) -> str:
        """Runs a podman command on the lab's own containers; returns its stdout. ``timeout`` in seconds.

        podman sees ``folder`` as /mnt.
        """
        return self._podman([*STORAGE, "--storage-opt", f"additionalimagestore={self._shared}", *arguments], stdin, timeout)

    def image(self, suite: str, packages: Iterable[str] = images.USUAL_PACKAGES) -> str:
        """The name of an image made of ``images.root(suite, packages)``, imported once for all labs (about 6 s)."""
        packages = tuple(packages)
        root = images.root(suite, packages)
        name = f"localhost/kubenode-lab:{root.name}"
        store = ["--root", str(self._shared), "--runroot", "/mnt/shared-run", "--tmpdir", "/mnt/shared-tmp"]
        with images.locked(self._shared):
            if name not in self._podman([*store, "images", "--format", "{{.Repository}}:{{.Tag}}"]).splitlines():
                print(f"lab: importing {root.name} as an image ...", flush=True)
                with subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE) as tar:
                    assert tar.stdout is not None
                    self._podman([*store, "import", "-", name], tar.stdout.fileno(), timeout=600)
        return name

    def built(self, build: Build) -> str:
        """The name of an image made of ``build``, for this lab alone (about 6 s)."""
        with build.archive() as archive:
            self.run("import", "-", "localhost/kubenode-lab:built", stdin=archive, timeout=600)
        return "localhost/kubenode-lab:built"

    @property
    def holder(self) -> int:
        """The process that holds the mount namespace, and cleans up."""
        return self._holder.pid

    @property
    def cgroup(self) -> str:
        """The parent of the containers' cgroups, which tells what is left if everything is killed."""
        return f"/{leftovers.CGROUP}/{self.folder.name}"

    def close(self) -> None:
        """Remove all containers; they do not outlive the call."""
        assert self._holder.stdin is not None and self._holder.stdout is not None
        self._holder.stdin.close()
        said = self._holder.stdout.read()
        self._holder.wait()
        if self.folder.exists():
            raise LabError(f"{self.folder} could not be removed; the next lab tries again\n{said}")

    def _podman(self, arguments: list[str], stdin: int = subprocess.DEVNULL, timeout: float = 120) -> str:
        if self._holder.poll() is not None:
            raise LabError("podman's place is gone: the shell that held its mount namespace has ended")
        enter = ["nsenter", "--target", str(self._holder.pid), "--mount", "--"]
        result = subprocess.run(
            [*enter, "podman", *arguments], check=False, stdin=stdin, capture_output=True, text=True, timeout=timeout,
            env={**entering.ENVIRONMENT, "CONTAINERS_CONF": f"{self.folder}/containers.conf"},
        )  # fmt: skip
        if result.returncode != 0:
            raise LabError(f"podman {' '.join(arguments)} answered {result.returncode}\n{result.stdout}{result.stderr}")
        return result.stdout
