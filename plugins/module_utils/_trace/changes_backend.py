# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# This module util is private to the collection: it may change at any time.

"""Changes in a twin: calls of this collection's modules by their own code, and commands of other tools."""

from __future__ import annotations

import contextlib
import glob
import importlib
import os
import re
import shlex
import shutil
import types
import typing as t
from pathlib import Path

from .._core import converge
from .._core.errors import DatapathError, Failure, Invalid, MissingLibrary, Refusal
from .._core.parts import NO_EFFECTS, Effects, Parts, Request, requested
from .._core.plan import Plane
from .._interfaces import interfaces_backend
from .._parts import profile
from .._platform import library, process, sysctl_files
from .._platform.sysctl_files import DOTTED
from .._routing import routing_backend
from .._twin import isolation_backend
from .._twin.blueprint import is_of_network
from .._twin.wall_backend import Root

if t.TYPE_CHECKING:  # so that Ansible copies them to the node, for apply()
    from .._parts import (  # noqa: F401
        azure_vnet_bridge,
        ebtables_cleanup,
        link_addresses,
        nftables_connmark,
        nftables_probe_snat,
        policy_routes,
        rp_filter,
    )

MODULES = (
    "azure_vnet_bridge", "ebtables_cleanup", "link_addresses", "nftables_connmark", "nftables_probe_snat", "policy_routes",
    "rp_filter",
)  # fmt: skip
SYSCTL = "sysctl"
# By program, words by which it would act outside of the twin: in another namespace, with a file, or by another program.
OUTSIDE = {
    "ip": r"-+(n|netns|b|batch|a|all)|netns|exec|monitor",
    "bridge": r"-+(n|netns|b|batch)|monitor",
    "nft": r"-+(f|file|i|interactive|I|includepath)(=.*)?|.*\binclude\b.*|monitor",
    "ipset": r"-+(f|file).*|restore|-R|-i|-interactive",
    **dict.fromkeys(
        ("iptables", "ip6tables", "ebtables"), r"-M.*|--mo(d(p.*)?)?(=.*)?|--atomic.*|--object-pinned.*|--init-table"
    ),
}
NFT_BACKED = ("iptables", "ip6tables", "ebtables")  # the twin has the tables of both backends in nf_tables
_SETTING = re.compile(r"(net[./][\w./@-]+) ?= ?(-?\d+)")
# Folders in which modules keep records and backups. In a twin they are empty, and what modules write there ends with the twin.
WRITABLE = ("/run", "/mnt", "/var/lib/kubenode")
BACKUP = "/mnt/kubenode-twin"
# What the twin of the node itself has of the node, besides: copies of files, with the reason. See also prepared().
COPIED = {
    "/etc/cni/net.d/*": "the configured CNI decides what is a leftover",
    "/etc/kubenode/*": "rp_filter and policy_routes compare the running state with what is loaded at boot",
    "/etc/machine-id": "a backup names the node that it is of",
    "/run/*": "azure-vnet's state files are evidence for its leftovers",
    "/run/kubenode/*": "modules restore what they have recorded there",
    "/run/systemd/resolve/*": "azure_vnet_bridge restores a bridge's name servers",
    "/run/systemd/resolve/netif/*": "azure_vnet_bridge restores a bridge's name servers",
    "/var/lib/kubenode/*": "modules restore what they have recorded there",
    **{
        path: "rp_filter names the file that sets a filter at boot"
        for path in (*(f"{folder}/*" for folder in sysctl_files.FOLDERS), sysctl_files.LAST_OF_PROCPS)
        if not path.startswith(isolation_backend.LIBRARIES)  # these folders are visible
    },
}
MOST_COPIED = 32 << 20  # bytes
PROFILE = "profile"

Checked = t.Callable[[t.Any, "dict[str, t.Any]"], "dict[str, t.Any]"]
Change = tuple[str, dict[str, t.Any]]


@contextlib.contextmanager
def prepared(calls: t.Sequence[Change], is_own: bool) -> t.Iterator[Root]:
    """The root of a twin in which the calls can be applied. is_own: whether it is the twin of the node on which this runs.

    The code of the modules is imported before the twin is walled in, and so is the library that encodes messages to the kernel.
    The node's own twin cannot enter the namespaces of pods, so the interfaces there are read before.
    """
    if not calls:
        yield isolation_backend.root()
        return
    for name, _options in calls:
        importlib.import_module(f".._parts.{name}", __package__)
    with contextlib.suppress(MissingLibrary):  # apply() raises it if a call needs the library
        library.load(library.PYROUTE2, *routing_backend.MODULES)
    with interfaces_backend.remembering() if is_own else contextlib.nullcontext():
        yield isolation_backend.root(WRITABLE, _copied(calls) if is_own else {})


def _copied(calls: t.Iterable[Change]) -> dict[str, bytes]:
    """The contents of COPIED, and of the backups that the calls name. Raises Refusal."""
    backups = [str(options.get("backup") or f"{WRITABLE[-1]}/backup") for name, options in calls]
    paths = [path for pattern in COPIED for path in glob.glob(pattern)]
    paths += [path for folder in dict.fromkeys(backups) for path in glob.glob(f"{glob.escape(folder)}/**", recursive=True)]
    found: dict[str, bytes] = {}
    for path in filter(os.path.isfile, dict.fromkeys(paths)):
        with contextlib.suppress(OSError):
            found[path] = Path(path).read_bytes()
        if sum(map(len, found.values())) > MOST_COPIED:
            raise Refusal(
                f"the files that modules compare with are larger than {MOST_COPIED >> 20} MiB together, at {path}. The twin"
                " has no place for more. Move what is not theirs to another folder"
            )
    return found


def module_calls(given: t.Any) -> list[Change]:
    """The entries of the option ``changes``. Raises Invalid."""
    found = []
    for number, one in enumerate(given or ()):
        option = f"changes[{number}]"
        if one == {}:  # an entry that the keyword omit has emptied
            continue
        if not isinstance(one, dict) or len(one) != 1:
            raise Invalid(option, one, "a dictionary with the name of a module as its only key, and its options as the value")
        ((name, options),) = one.items()
        short = str(name).rpartition(".")[2]
        if short not in (*MODULES, PROFILE):
            raise Invalid(option, name, f"a call of one of {', '.join((*MODULES, PROFILE))}")
        if not isinstance(options or {}, dict):
            raise Invalid(f"{option}.{name}", options, "the module's options, a dictionary")
        found.append((short, dict(options or {})))
    return found


def without_profiles(calls: t.Iterable[Change], request: Request) -> t.Iterator[Change]:
    """The calls, with a profile replaced by the calls of its modules. Its references are resolved on this node. Raises
    DatapathError.

    Modules that do not change the packet path of the running kernel are left out, and so are all modules of an image.
    """
    for name, options in calls:
        if name != PROFILE:
            yield name, options
            continue
        entries, known = profile.learned(requested(profile, dict(options), request))
        yield from ((one.module, one.options) for one in entries if one.module in MODULES and not known["is_image"])


def refuse_profiles(calls: t.Iterable[Change]) -> None:
    """Raises Invalid for a profile: its references would be resolved on this machine, which is not the node of the snapshot."""
    for name, options in calls:
        if name == PROFILE:
            raise Invalid(f"changes.{PROFILE}", options, "left out if snapshot or dump is given: a profile reads the node itself")


def commands(given: t.Iterable[object]) -> list[list[str]]:
    """The words of each entry of the option ``commands``. Raises Invalid for one that could act outside of the twin."""
    found = []
    for number, text in enumerate(given):
        option = f"commands[{number}]"
        try:
            words = shlex.split(str(text))
        except ValueError as error:
            raise Invalid(option, text, f"a command line ({error})") from None
        words = words[1:] if words[:1] == ["sudo"] else words
        name = words[0].rpartition("/")[2] if words else ""
        if name != SYSCTL and name not in OUTSIDE:
            raise Invalid(option, text, f"a command of one of {', '.join([*OUTSIDE, SYSCTL])}")
        if name == SYSCTL:
            for one in words[1:]:
                setting = _SETTING.fullmatch(one)
                if one != "-w" and not (setting and is_of_network(_path(setting[1]))):
                    raise Invalid(option, text, "sysctl -w and settings net...=NUMBER")
        elif any(re.fullmatch(OUTSIDE[name], word) for word in words[1:]):
            raise Invalid(option, text, "a command without files, other namespaces and other programs, because it runs in a twin")
        found.append([name, *words[1:]])
    return found


def apply(
    calls: t.Sequence[Change],
    lines: t.Sequence[t.Sequence[str]],
    run: process.Runner,
    checked: Checked,
    warn: t.Callable[[str], None],
) -> None:
    """Applies the calls, then the commands. Raises DatapathError that names the call or the command."""
    effects = NO_EFFECTS
    for name, options in calls:
        try:
            effects = effects.then(_call(name, options, Request({}, {}, run, warn, checked, effects)))
        except Invalid as error:
            raise error.inside(f"changes.{name}") from None
        except MissingLibrary:
            raise
        except DatapathError as error:
            raise Failure(f"{name} failed in the twin: {error}") from error
    for words in lines:
        _command(words, run)


def _call(name: str, options: dict[str, t.Any], by: Request) -> Effects:
    part: types.ModuleType = importlib.import_module(f".._parts.{name}", __package__)
    given = dict(options)
    if "permanent" in part.OPTIONS:
        given.update(immediate=True, permanent=False)
    if "backup" in part.OPTIONS:
        former = str(given.get("backup") or part.OPTIONS["backup"]["default"])
        if not os.path.isdir(BACKUP):
            shutil.copytree(former, BACKUP) if os.path.isdir(former) else os.makedirs(BACKUP)
        given["backup"] = BACKUP
    given.pop("checkpoint", None)
    own: Parts = part.parts(requested(part, given, by, by.earlier))
    resources = [one for one in own.resources if one.plane is Plane.IMMEDIATE]
    converge.converge(
        resources,
        {Plane.IMMEDIATE},
        groundwork=own.groundwork,
        permit=lambda outcome: library.require(outcome.operations()),
    )
    return own.effects


def _command(words: t.Sequence[str], run: process.Runner) -> None:
    name, *arguments = words
    if name == SYSCTL:
        for path, value in _SETTING.findall(" ".join(arguments)):
            with _told(words), open(f"/proc/sys/{_path(path)}", "w") as file:
                file.write(value)
        return
    program = f"{name}-nft" if name in NFT_BACKED else name
    path = process.find(program)
    if path is None:
        raise Failure(f"{program} is not installed, so that the twin cannot run `{shlex.join(words)}`. Install it and run again")
    done = run([path, *arguments], None)
    if done.rc:
        raise Failure(f"`{shlex.join(words)}` failed in the twin: {done.stderr.strip() or done.rc}")


def _path(key: str) -> str:
    """The path of a setting below /proc/sys. sysctl(8) takes both separators; the first one tells which is meant."""
    return key if key.startswith("net/") else key.translate(DOTTED)


@contextlib.contextmanager
def _told(words: t.Sequence[str]) -> t.Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Failure(f"`{shlex.join(words)}` failed in the twin: {error.strerror}") from error
