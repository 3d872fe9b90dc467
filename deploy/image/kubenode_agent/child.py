# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Audits the node in a child of the agent, which enters the namespaces of the node's process 1.

The child inherits all code that it may need: behind the node's mounts are no files of the image. ansible-playbook would take a
second of a processor, and a program that starts anew half a second.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import json
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ansible_collections.kubenode.datapath.plugins import module_utils
from ansible_collections.kubenode.datapath.plugins.module_utils._audit import audit_backend, catalogue
from ansible_collections.kubenode.datapath.plugins.module_utils._audit.node import SUBSETS
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import DatapathError, Failure
from ansible_collections.kubenode.datapath.plugins.module_utils._core.printable import all_printable
from ansible_collections.kubenode.datapath.plugins.module_utils._explain import digest
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import library, process
from ansible_collections.kubenode.datapath.plugins.module_utils._render import findings
from ansible_collections.kubenode.datapath.plugins.module_utils._snapshot import snapshot_backend

from .playbook import kill

LIMIT = 600.0  # seconds for an audit
FIRST = 1  # the node's process whose namespaces are entered
NAMESPACES = ("uts", "ipc", "net", "cgroup", "mnt")  # as the connection nsenter, which names their reasons; mnt hides the others
LEFT_OUT = ("_queries", "_pastes")  # rooms that an audit does not need; the modules import Ansible
DIGEST = "digest"  # a key beside those of a result
OF_PYTHON = ("difflib", "http.client", "importlib.metadata")  # that functions of the collection import
PART = 1 << 16  # bytes that are read at once


class Audit(NamedTuple):
    """result: of datapath_audit. sentence: why there is none; empty if there is. processor: seconds of one.

    digest: of the snapshot; empty if there is none.
    """

    result: Mapping[str, Any]
    sentence: str = ""
    seconds: float = 0.0
    processor: float = 0.0
    digest: str = ""


def preload() -> None:
    """Import all that a child may need, and what it could not find behind the node's mounts."""
    for folder in (Path(folder) for folder in module_utils.__path__):
        for path in folder.glob("_*/*.py"):
            if path.parent.name not in LEFT_OUT:
                importlib.import_module(f"{module_utils.__name__}.{path.parent.name}.{path.stem}")
    for name in OF_PYTHON:
        importlib.import_module(name)
    library.load(library.PYROUTE2)


def audit(former: Audit | None = None) -> Audit:
    """Audit the node. former: whose result stays if the node has the same state as then, as after rules were written anew."""
    began = time.monotonic()
    ended = run(functools.partial(_audit, former.digest if former else ""))
    if former and ended.result == {DIGEST: former.digest}:
        return former._replace(seconds=time.monotonic() - began, processor=ended.processor)
    result = {key: value for key, value in ended.result.items() if key != DIGEST}
    sentence = ended.sentence or findings.fleet({"": result}).failed.get("", "")
    return Audit(result, sentence, time.monotonic() - began, ended.processor, "" if sentence else ended.result[DIGEST])


def _audit(former: str) -> dict[str, Any]:
    """Return the result with the snapshot's digest, or the digest alone if it is the former one. Raises DatapathError."""
    enter()
    node = snapshot_backend.read(process.run, SUBSETS, catalogue.SETTINGS, is_compact=True)
    state = digest.digest(node)
    if state == former:
        return {DIGEST: state}
    # No event and no metric has a remedy, and to find those that no check has takes more twins than all else.
    audit = audit_backend.Audit(node, catalogue.CHECKS, is_own=True, wants_remedies=False)
    return {**audit_backend.result(audit, process.run), DIGEST: state}


def enter() -> None:
    """Enter the namespaces of the node's process 1. Raises Failure."""
    try:
        if os.stat(f"/proc/{FIRST}/ns/mnt").st_ino == os.stat("/proc/self/ns/mnt").st_ino:
            raise Failure(
                f"Process {FIRST} is in this pod, so that the pod would be audited instead of the node. Set hostPID of the pod"
                " to true"
            )
        opened = [os.open(f"/proc/{FIRST}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in NAMESPACES]
        enters = ctypes.CDLL(None, use_errno=True).setns  # Python has it from 3.12
        for descriptor in opened:
            if enters(descriptor, 0):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            os.close(descriptor)
    except OSError as error:
        raise Failure(
            f"The namespaces of process {FIRST} cannot be entered: {error.strerror}. Run the pod as root with hostPID, SYS_ADMIN,"
            " SYS_PTRACE and SYS_CHROOT, and without an AppArmor profile that forbids it"
        ) from error


class Ended(NamedTuple):
    """result: of the function. sentence: why there is none; empty if there is. processor: seconds of a processor that it took."""

    result: Mapping[str, Any]
    sentence: str
    processor: float


def run(work: Callable[[], Mapping[str, Any]]) -> Ended:
    """Call a function in a child, which ends with it. The result is plain data with printable texts.

    Only this thread goes on in the child. Others, that serve metrics, hold no lock that an audit takes; LIMIT ends what hangs.
    """
    reading, writing = os.pipe2(os.O_CLOEXEC)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    child = os.fork()
    if not child:
        _work(work, writing)
    os.close(writing)
    try:
        text = _text(reading)
    except TimeoutError:
        kill(child)
        text = json.dumps({"sentence": f"the audit did not end within {LIMIT:g} s and was killed"}).encode()
    finally:
        os.close(reading)
    _pid, status = os.waitpid(child, 0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    try:
        answer = json.loads(text)
    except ValueError:
        answer = {"sentence": f"the audit ended with status {os.waitstatus_to_exitcode(status)} and without a result"}
    return Ended(answer.get("result", {}), answer.get("sentence", ""), seconds)


def _work(work: Callable[[], Mapping[str, Any]], writing: int) -> None:
    """Send the result of a function, or why there is none, and end this process."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        try:
            answer = {"result": all_printable({**work()})}
        except DatapathError as error:
            answer = {"sentence": str(error)}
        except BaseException as error:  # noqa: BLE001  # an error of the collection must not continue the agent in the child
            answer = {"sentence": f"{type(error).__name__}: {error}"}
        with os.fdopen(writing, "w") as pipe:
            json.dump(answer, pipe)
    finally:
        os._exit(0)


def _text(reading: int) -> bytes:
    """Read what a child sends until it ends. Raises TimeoutError."""
    end, parts = time.monotonic() + LIMIT, list[bytes]()
    poll = select.poll()
    poll.register(reading)
    while poll.poll(max(0.0, end - time.monotonic()) * 1000):
        part = os.read(reading, PART)
        if not part:
            return b"".join(parts)
        parts.append(part)
    raise TimeoutError
