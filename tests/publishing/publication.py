# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""``make publish``: hand what `make release` built to one of the places from which users install. The release workflow runs it.

    publication.py PLACE [--show]    galaxy, github, chart, agent, environment or site; with --show only print the commands

REGISTRY is the address of images and charts, without a scheme, such as ghcr.io/kubenode. REGISTRY_USER and REGISTRY_PASSWORD log
in there; without them, podman and helm are logged in already. ansible-galaxy and gh take their tokens from their own variables.
PyPI gets the wheel from an action in the workflow.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import installation
from installation import ROOT, NotInstalled

from publishing import release, site_versions

DIGEST = ROOT / ".build/release/digest"  # of the image that was pushed
BUILT = ROOT / ".build/release/artefacts"
PAGES = ROOT / ".build/pages"  # a checkout of the branch gh-pages
VERSION = installation.version()
TAG = f"v{VERSION}"
COLLECTION, CHART = BUILT / f"kubenode-datapath-{VERSION}.tar.gz", BUILT / f"kubenode-datapath-{VERSION}.tgz"

PLATFORMS = ("linux/amd64", "linux/arm64")
EMULATION = ["qemu-user-static"]  # to run the programs of the other architecture while an image is built

Command = list[str | Path]


def galaxy() -> list[Command]:
    return [["ansible-galaxy", "collection", "publish", COLLECTION]]


def github() -> list[Command]:
    """A release with all artefacts and the section of the changelog."""
    notes = BUILT.with_name("notes.md")
    changelog: Command = ["antsibull-changelog", "generate", "--only-latest", "--output-format=md", "--output", notes]
    create: Command = ["gh", "release", "create", TAG, "--verify-tag", f"--title={TAG}", f"--notes-file={notes}"]
    return [changelog, [*create, *sorted(BUILT.iterdir())]]


def chart() -> list[Command]:
    return [["helm", "push", CHART, f"oci://{registry()}/charts"]]


def agent() -> list[Command]:
    """The image of the DaemonSet, which contains the collection."""
    context = ROOT / "deploy/image"
    return [["cp", COLLECTION, context], *image("kubenode-agent", context, f"--build-arg=VERSION={VERSION}", "--timestamp=0")]


def environment() -> list[Command]:
    """The execution environment, whose definition takes the collection that lies beside it."""
    definition = ROOT / "deploy/execution-environment/execution-environment.yml"
    context = ROOT / ".build/release/execution-environment"
    create: Command = ["ansible-builder", "create", f"--file={definition}", f"--context={context}"]
    return [
        ["cp", COLLECTION, definition.parent],
        [*create, "--output-filename=Containerfile"],
        *image("kubenode-execution-environment", context),
    ]


def image(subject: str, context: Path, *options: str) -> list[Command]:
    """Build an image for both architectures, and push it as one name.

    Without a cache: from it, podman 4.3 took the image of one architecture for the other. A restart of systemd-binfmt makes the
    kernel run the programs of ARM64 by qemu.
    """
    name = f"{registry()}/{subject}:{VERSION}"
    about = {"version": VERSION, "revision": installation.output(["git", "rev-parse", "HEAD"]).strip()}
    labels = [f"--label=org.opencontainers.image.{key}={value}" for key, value in about.items()]
    platforms = f"--platform={','.join(PLATFORMS)}"
    return [
        ["sudo", "systemctl", "restart", "systemd-binfmt"],
        ["podman", "build", "--no-cache", platforms, f"--manifest={name}", *labels, *options, context],
        ["podman", "manifest", "push", "--all", f"--digestfile={DIGEST}", name, f"docker://{name}"],
    ]


def site() -> list[Command]:
    """The site of this version beside those of the others, on the branch that GitHub Pages serves."""
    version = TAG if TAG in release.tags() else site_versions.NEXT
    add: Command = ["python", "-m", "publishing.site_versions", PAGES, ROOT / ".build/docs/html", version]
    git: Command = ["git", "-C", PAGES]
    return [add, [*git, "add", "--all"], [*git, "commit", "--allow-empty", f"--message=site: {version}"], [*git, "push"]]


def registry() -> str:
    address = os.environ.get("REGISTRY", "")
    if not address:
        raise NotInstalled("REGISTRY must be the address of images and charts, such as ghcr.io/kubenode")
    return address


PLACES: dict[str, Callable[[], list[Command]]] = {
    place.__name__: place for place in (galaxy, github, chart, agent, environment, site)
}


def main(name: str, options: list[str]) -> None:
    if name not in PLACES:
        raise NotInstalled(f"PLACE must be one of {', '.join(PLACES)}; {name!r} is none of them")
    commands = PLACES[name]()
    if "--show" in options:
        print("\n".join(_line(command) for command in commands))
        return
    if PLACES[name] in (agent, environment):
        installation.install_packages(EMULATION)
    if os.environ.get("REGISTRY_PASSWORD"):
        log_in()
    DIGEST.unlink(missing_ok=True)
    for command in commands:
        print(f"$ {_line(command)}", flush=True)
        subprocess.run([str(word) for word in command], cwd=ROOT, check=True)
    if DIGEST.exists() and "GITHUB_OUTPUT" in os.environ:  # the workflow attests the image by its digest
        with open(os.environ["GITHUB_OUTPUT"], "a") as outputs:
            outputs.write(f"digest={DIGEST.read_text()}\n")


def log_in() -> None:
    """Log podman and helm in. The password goes by standard input, because all users of a machine can read a command line."""
    host = registry().partition("/")[0]
    for program in (["podman", "login"], ["helm", "registry", "login"]):
        command = [*program, host, "--username", os.environ["REGISTRY_USER"], "--password-stdin"]
        subprocess.run(command, input=os.environ["REGISTRY_PASSWORD"], text=True, check=True)


def _line(command: Command) -> str:
    return shlex.join(map(str, command))


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2:])
    except (NotInstalled, subprocess.CalledProcessError) as reason:
        sys.exit(f"publication: {reason}")
