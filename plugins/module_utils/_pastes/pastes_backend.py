# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads pasted outputs from a folder, an archive or an option, in a process whose computation and memory the kernel bounds."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import traceback
import typing as t
from functools import partial

from .._core import json_object
from .._core.errors import Invalid
from .._core.printable import first_of
from .._files import files
from .._platform import process
from .._snapshot import snapshot
from . import archive_backend, bundles, commands, output_names, pastes
from .commands import Part
from .pastes import LARGEST, Pasted


class Exceeded(Exception):
    """The function exceeded the bound that the text names."""


def within_bounds(work: t.Callable[[], t.Any], seconds: int, size: int) -> t.Any:
    """Return the function's result, which is plain data. Raises Exceeded, and Invalid if the function raises it.

    seconds: of computation. size: bytes of memory.
    """
    reading, writing = os.pipe()
    child = process.fork(lambda: _bounded_child(work, seconds, size, writing))
    os.close(writing)
    with open(reading, "rb") as file:
        text = file.read()
    _pid, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        raise Exceeded(f"{seconds} s of computation")
    if status:  # also where the kernel itself had no memory, and killed the process
        raise Exceeded(f"{size >> 20} MiB of memory")
    answer = json.loads(text)
    if "invalid" in answer:
        raise Invalid(*answer["invalid"])
    if "failure" in answer:
        raise RuntimeError(answer["failure"])
    return answer["result"]


def _bounded_child(work: t.Callable[[], t.Any], seconds: int, size: int, writing: int) -> None:
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    # macOS refuses a bound on memory.
    for limit, most in ((resource.RLIMIT_CPU, seconds), (resource.RLIMIT_AS, size), (resource.RLIMIT_CORE, 0)):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(limit, (most, resource.getrlimit(limit)[1]))
    text = json.dumps(_answer(work), default=str).encode()
    with open(writing, "wb") as file:
        file.write(text)


def _answer(work: t.Callable[[], t.Any]) -> dict[str, t.Any]:
    try:
        return {"result": work()}
    except Invalid as error:
        return {"invalid": error.values}
    except MemoryError:
        raise
    except Exception:
        return {"failure": traceback.format_exc()}


EXPECTED = (
    "a folder, an archive or a file, a dictionary of texts by command, a text with commands and their outputs, or a list of these"
)
OF_MANY = "left out for evidence of one node"  # what the option ``node`` must be
NAME = "report"  # of a text whose name tells nothing
SUFFIXES = (".txt", ".log", ".json", ".out", ".old", ".new")
SECONDS, BYTES = 60, 2 << 30  # of computation and of memory, to read a dump
OF_NODE = "kubenode-datapath commands prints a script, whose output on the node has what it lacks"  # of a bundle
OF_SOS = "version.txt"  # which says nothing about the node
SHOWN = 5  # names in a sentence
Paths = dict[bundles.Unused, dict[str, None]]  # of files that are not read, by the reason
DEEPEST = 4  # parts of the path of a file in an archive that people made: archive, folder, node and file


class Report(t.NamedTuple):
    """The texts of the option ``dump`` by name. notes: sentences about what was left out."""

    texts: dict[str, str]
    notes: list[str]


def read(dump: t.Any, node: str = "", interface: str = "") -> Pasted:
    """Return the snapshot that the option ``dump`` has as JSON, or the one that its outputs of commands make, within bounds.

    node: which node of a bundle of many, or of a text with their prompts. interface: as for pastes.read(). Raises Invalid.
    """
    try:
        return Pasted(*within_bounds(lambda: _pasted(dump, node, interface), SECONDS, BYTES))
    except Exceeded as bound:
        raise Invalid("dump", dump, f"outputs that are read with at most {bound}") from None


def states(dump: t.Any, node: str = "") -> tuple[t.Any, t.Any] | None:
    """Divide a folder with outputs of two states of a node, by their names, into what read() takes of each; None for one state.

    Raises Invalid.
    """
    return output_names.two_states(report(_file(dump) or dump, node).texts)


def nodes(path: str) -> dict[str, t.Any]:
    """Return what read() takes of each node by a name, if a path has several nodes; nothing for one node. Raises Invalid.

    Those are the nodes of a bundle of many, and of a folder whose entries are bundles, snapshots or folders. Such an entry may
    have several nodes, too.
    """
    try:
        return t.cast("dict[str, t.Any]", within_bounds(lambda: _nodes(path), SECONDS, BYTES))
    except Exceeded as bound:
        raise Invalid("dump", path, f"evidence that is read with at most {bound}") from None


def _nodes(path: str) -> dict[str, t.Any]:
    is_folder = os.path.isdir(path)
    if not is_folder and not os.path.isfile(path):
        return {}
    try:
        if not is_folder and not archive_backend.is_archive(path):
            return {}
        wanted = partial(_wanted, {})
        texts = archive_backend.folder(path, wanted).texts if is_folder else _texts_of([archive_backend.read(path, wanted)])
        of_bundle = bundles.nodes(texts)
        if is_folder and not of_bundle:
            return _entries(path)
        of_bundle = of_bundle or bundles.folders(_texts_of([archive_backend.read(path, _most)]))
    except OSError as error:
        raise Invalid("dump", path, f"a folder or archive that can be read ({error})") from None
    name = os.path.basename(os.path.abspath(path))
    return {key: {**bundles.origin(name, key), **node} for key, node in of_bundle.items()} if len(of_bundle) > 1 else {}


def _entries(path: str) -> dict[str, str]:
    """Return the places in a folder by their names, if several are a node each; nothing if they are outputs or states of one."""
    places = {name: os.path.join(path, name) for name in sorted(os.listdir(path)) if not name.startswith(".")}
    texts = {name: place for name, place in places.items() if os.path.isfile(place) and name.endswith(SUFFIXES)}
    if any(part.kind for name in texts for part in commands.parts(name, "")):
        return {}
    hosts = {name: host for name, place in texts.items() if (host := _host(name, _text_of(place))) is not None}
    whole = {name for name in places if name.endswith(archive_backend.EXTENSIONS) or os.path.isdir(places[name])}
    is_of_one = not whole and len({host.partition(".")[0] for host in hosts.values()}) == 1
    if is_of_one or len(whole) + len(hosts) < 2:
        return {}
    return {name: place for name, place in places.items() if name in texts or name in whole}


def _host(name: str, text: str) -> str | None:
    """Return the node of a snapshot, or of a text whose prompts all name one host; None for another text."""
    value = _from_json(text)
    if snapshot.is_snapshot(value):
        return snapshot.Origin.of(value).name
    hosts = {part.host for part in commands.parts(name, text) if part.host and not part.is_pod}
    return hosts.pop() if len(hosts) == 1 else None


def _pasted(dump: t.Any, node: str, interface: str) -> Pasted:
    if isinstance(dump, (list, tuple)) and len(dump) == 1:
        dump = dump[0]
    given = _file(dump) or dump
    outputs = report(given, node)
    whole = _snapshot_among(outputs.texts)
    if whole:
        others = [*outputs.texts.keys() - {whole}]
        return Pasted(
            snapshot.of_this_format("dump", _from_json(outputs.texts[whole])), [*outputs.notes, *_beside_snapshot(whole, others)]
        )
    try:
        pasted = pastes.read(outputs.texts, interface, "" if _is_path(given) or isinstance(given, (list, tuple)) else node)
    except Invalid as error:
        option, value, allowed = error.values
        raise Invalid(option, value, ". ".join([allowed, *outputs.notes]).rstrip(".")) from None
    return pasted._replace(ignored=[*outputs.notes, *pasted.ignored])


def _snapshot_among(texts: t.Mapping[str, str]) -> str:
    """Return the name of the newest snapshot among outputs; of the last one if one does not say its time, and empty for none."""
    parsed = ((name, _from_json(text)) for name, text in texts.items() if '"unread"' in text)
    times = {name: snapshot.Origin.of(value).comparable_time for name, value in parsed if snapshot.is_snapshot(value)}
    newest = max(times.values()) if all(times.values()) and times else ""
    return next((name for name, time in reversed(times.items()) if newest in ("", time)), "")


def _beside_snapshot(name: str, others: t.Collection[str]) -> list[str]:
    """Return what is left out beside a snapshot, which has all that they have and more."""
    others = {*others} - {commands.HOSTNAME, commands.DATE}
    listed = first_of(sorted(others), SHOWN)
    return [f"{name} is a snapshot, which is whole. Beside it, these are left out: {listed}."] if others else []


def _is_path(dump: t.Any) -> bool:
    """Return whether a dump is a path, and no text with outputs."""
    return isinstance(dump, str) and "\n" not in dump and bool(dump.strip())


def _file(path: t.Any) -> dict[str, str] | None:
    """Read a file that is no archive, by its name. None for an archive, a folder and anything else."""
    if not _is_path(path) or not os.path.isfile(path) or archive_backend.is_archive(path):
        return None
    try:
        return {os.path.basename(path): _text_of(path)}
    except OSError as error:
        raise Invalid("dump", path, f"a file that can be read ({error.strerror})") from None


def _from_json(dump: t.Any) -> t.Any:
    """Parse JSON text of a dictionary, as templates and options on a command line give one. Return anything else as it is."""
    if isinstance(dump, str) and dump.lstrip()[:1] == "{":
        with contextlib.suppress(ValueError):
            return json_object.load(dump)
    return dump


def report(dump: t.Any, node: str = "") -> Report:
    """Read the option ``dump``. Raises Invalid.

    node: which node of a bundle of many.
    """
    dump = _from_json(dump)
    if isinstance(dump, (list, tuple)) and dump:
        return _together(dump, node)
    if not isinstance(dump, dict) and (not isinstance(dump, str) or not dump.strip()):
        raise Invalid("dump", dump, EXPECTED)
    if _is_path(dump):
        return _at(str(dump), node)
    if isinstance(dump, str) or snapshot.is_snapshot(dump):
        texts = {NAME: dump if isinstance(dump, str) else json.dumps(dump)}
    else:
        texts = {str(name): _text(f"dump.{name}", text) for name, text in dump.items()}
    if node and node not in output_names.hosts(part for name, text in texts.items() for part in commands.parts(name, text)):
        raise Invalid("node", node, OF_MANY)
    return Report(texts, [])


def _together(dumps: t.Sequence[t.Any], node: str) -> Report:
    """Read outputs of one node in several places, of which a later one counts more, unless it alone is cut. Raises Invalid."""
    texts: dict[str, str] = {}
    notes: list[str] = []
    for dump in dumps:
        given = _file(dump) or _from_json(dump)
        each = _at(str(given), node, is_alone=False) if _is_path(given) else report(given)
        for name, text in each.texts.items():
            earlier = texts.pop(name, text)  # so that it stands behind the others
            texts[name] = text if text == earlier else _of_two(name, earlier, text, notes)
        notes += each.notes
    return Report(texts, notes)


def _of_two(name: str, earlier: str, later: str, notes: list[str]) -> str:
    """Return the text that counts of two with one name, or both if the name is of no command and none is a snapshot."""
    newest = _snapshot_among({"earlier": earlier, "later": later})
    if newest:
        notes.append(f"There are several texts with the name {name}. The {newest} one, a snapshot, is taken.")
        return earlier if newest == "earlier" else later
    if not any(part.kind for part in commands.parts(name, "")):
        return f"{earlier}\n{later}"
    is_whole = [Part("", tuple(text.splitlines())).has_all_lines for text in (earlier, later)]
    notes.append(f"There are several outputs of {name}. The {'whole' if is_whole == [True, False] else 'last'} one is taken.")
    return earlier if is_whole == [True, False] else later


def _archives(path: str) -> list[str]:
    """Return the archives of a folder."""
    places = (os.path.join(path, name) for name in sorted(os.listdir(path)) if name.endswith(archive_backend.EXTENSIONS))
    return [place for place in places if os.path.isfile(place)]


def _at(path: str, node: str, is_alone: bool = True) -> Report:
    """Read a folder or an archive. is_alone: whether node names one of its nodes, and not perhaps one of another place."""
    try:
        if not os.path.isdir(path):
            return _of_archives([path], node)
        unused: Paths = {}
        files = archive_backend.folder(path, partial(_wanted, unused))
        nodes = bundles.nodes(files.texts)
        bundled = _archives(path)
        if nodes:
            beside, others = _beside(path)
            within = {file.rpartition("/")[2]: text for file, text in _within(path).items()}
            notes = [*_of_unused(unused), *_notes(files), *_without_output([*others, *map(os.path.basename, bundled)])]
            return Report({**_of_bundle(nodes, node, path), **within, **beside}, notes)
        if bundled:
            found = _of_archives(bundled, node)
            return Report({**found.texts, **_of_folder(path)}, [*found.notes, *_unread_in(path)])
        texts, notes = _of_folder(path), [*_of_unused(unused), *_unread_in(path)]
        within = _within(path)
        if within and not any(part.kind for name, text in texts.items() for part in commands.parts(name, text)):
            return Report(bundles.of_node(bundles.folders(within), node), notes)
        if unused and not texts:
            raise _without_outputs(path, [files], unused)
        if node and is_alone:
            raise Invalid("node", node, OF_MANY)
        return Report(texts, [*notes, *(f"{file} is in a folder of its own. It is left out." for file in within)])
    except OSError as error:
        raise Invalid("dump", path, f"a folder or archive that can be read ({error})") from None


def _of_archives(paths: t.Sequence[str], node: str) -> Report:
    """Read archives, each of which has nodes of its own. Raises Invalid, OSError."""
    unused: Paths = {}
    read = [archive_backend.read(path, partial(_wanted, unused)) for path in paths]
    nodes = bundles.nodes(_texts_of(read))
    is_bundle = bool(nodes)
    if not nodes:
        read = [archive_backend.read(path, _most) for path in paths]
        nodes = bundles.folders(_texts_of(read))
    if not nodes:
        raise _without_outputs(", ".join(paths), read, unused)
    empty = [os.path.basename(path) for path, files in zip(paths, read) if not files.texts]
    notes = [*_of_unused(unused), *(note for files in read for note in _notes(files)), *_without_output(empty)]
    return Report(_of_bundle(nodes, node, paths[0]) if is_bundle else bundles.of_node(nodes, node), notes)


def _of_bundle(nodes: t.Mapping[str, dict[str, str]], node: str, path: str) -> dict[str, str]:
    """Return the outputs of a node of a bundle, with its name and with the time in the name of the bundle."""
    texts = bundles.of_node(nodes, node)
    key = next(key for key, of_node in nodes.items() if of_node is texts)
    return {**bundles.origin(os.path.basename(os.path.abspath(path)), key), **texts}


def _texts_of(read: t.Iterable[archive_backend.Files]) -> dict[str, str]:
    return {path: text for files in read for path, text in files.texts.items()}


def _wanted(unused: Paths, file: str) -> int:
    """Return how many bytes are read of a file, and note one that is not read."""
    reason = bundles.unused(file)
    if reason:
        unused.setdefault(reason, {})[file] = None
    return bundles.most(file)


def _within(path: str) -> dict[str, str]:
    """Read the outputs in folders within a folder, by their paths. The names of their files are those of commands."""

    def most(file: str) -> int:
        name = file.rpartition("/")[2]
        is_output = file.count("/") > 1 and name.endswith(SUFFIXES)
        is_output = is_output and any(part.kind and not part.is_pod for part in commands.parts(name, ""))
        return bundles.LARGEST if is_output and not bundles.most(file) else 0

    files = archive_backend.folder(path, most)
    return {file: text for file, text in files.texts.items() if file not in files.links}


def _unread_in(path: str) -> list[str]:
    """Return sentences about the files of a folder that have no name of a text or an archive."""
    names = [name for name in sorted(os.listdir(path)) if not (_has_text(name) or name.endswith(archive_backend.EXTENSIONS))]
    files = [name for name in names if os.path.isfile(os.path.join(path, name)) and not name.startswith(".")]
    return [f"{name} has no name of a text, such as {name}.txt. It is left out." for name in files]


def _beside(path: str) -> tuple[dict[str, str], list[str]]:
    """Read the outputs that stand beside the files of a bundle, which may have links to some of its own. Return the names of
    the others, too."""
    top = os.path.basename(os.path.abspath(path))
    names = (name for name in sorted(os.listdir(path)) if _has_text(name) and not bundles.most(os.path.join(top, name)))
    places = {name: os.path.join(path, name) for name in names}
    texts = {name: _text_of(place) for name, place in places.items() if os.path.isfile(place) and not os.path.islink(place)}
    snapshots = {name for name, text in texts.items() if _snapshot_among({name: text})}
    read = {
        name: text for name, text in texts.items() if name in snapshots or any(part.kind for part in commands.parts(name, text))
    }
    others = [name for name in texts if name not in read and name.endswith(SUFFIXES) and name != OF_SOS]
    return read, others


def _without_output(names: t.Iterable[str]) -> list[str]:
    return [f"{name} has no output that is read there. It is left out." for name in names]


def _of_folder(path: str) -> dict[str, str]:
    """Read the texts of a folder that is no bundle."""
    paths = {name: os.path.join(path, name) for name in sorted(os.listdir(path)) if _has_text(name)}
    paths = {name: place for name, place in paths.items() if os.path.isfile(place)}
    if sum(map(os.path.getsize, paths.values())) > LARGEST:
        raise Invalid("dump", path, f"a folder with files of at most {LARGEST} bytes together")
    return {name: _read(place, os.path.realpath(path)) for name, place in paths.items()}


def _has_text(name: str) -> bool:
    return name.endswith(SUFFIXES) or "." not in name


def _most(path: str) -> int:
    """Return how many bytes are read of a file of an archive, which may be an output that a person put there."""
    parts = path.split("/")
    return bundles.LARGEST if len(parts) <= DEEPEST and _has_text(parts[-1]) and not bundles.unused(path) else 0


def _notes(files: archive_backend.Files) -> list[str]:
    notes = [f"{path} has more than {most} bytes. What is behind them is left out." for path, most in files.cut.items()]
    links = ((path, target or "another file") for path, target in files.links.items())
    notes += [f"{path} is a link to {target}, which is not read. It is left out." for path, target in links]
    return notes + [f"{path} is an archive within an archive of the archive. It is left out." for path in files.unopened]


def _of_unused(unused: Paths) -> list[str]:
    """Return sentences about files of collectors that are not read, with the reasons."""
    sentences = []
    for reason, paths in unused.items():
        more = (
            f" and {len(paths) - 1} more of its kind, of {reason.bundle}, are" if len(paths) > 1 else f", of {reason.bundle}, is"
        )
        sentences.append(f"{next(iter(paths))}{more} left out, because {reason.reason}.")
    return sentences


def _without_outputs(path: str, read: t.Iterable[archive_backend.Files], unused: Paths) -> Invalid:
    unopened = ", ".join(inner for files in read for inner in files.unopened)
    inner = f". Unpack {unopened}, which is an archive within an archive of the archive" if unopened else ""
    named = "".join(f". {sentence.rstrip('.')}" for sentence in [*_of_unused(unused), *([OF_NODE] if unused else [])])
    return Invalid("dump", path, f"a support bundle that is known, or an archive with outputs of commands{inner}{named}")


def _text(option: str, value: t.Any) -> str:
    """A text, or its lines."""
    if isinstance(value, (list, tuple)) and all(isinstance(line, str) for line in value):
        return "\n".join(value)
    if value is not None and not isinstance(value, str):
        raise Invalid(option, value, "the output of a command: a text or a list of its lines")
    return value or ""


def _read(path: str, folder: str) -> str:
    """Read a file of a folder. Raises Invalid, OSError.

    A link of a report must not show a file of this machine.
    """
    if os.path.commonpath([os.path.realpath(path), folder]) != folder:
        raise Invalid("dump", path, "a folder with files, and not with links to files outside of it")
    return _text_of(path)


def _text_of(path: str) -> str:
    """Read a file. What is no UTF-8 in it is replaced. Raises Invalid, OSError."""
    if os.path.getsize(path) > LARGEST:
        raise Invalid("dump", path, f"a file of at most {LARGEST} bytes, or a folder with such files")
    return files.text(path)
