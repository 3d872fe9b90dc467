# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Operations in a journal read back as they were, and nothing else is decoded."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import subprocess
import sys
import typing as t
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.datapath.plugins import module_utils
from ansible_collections.kubenode.datapath.plugins.module_utils._boot.program_archive import archive
from ansible_collections.kubenode.datapath.plugins.module_utils._core import codec
from ansible_collections.kubenode.datapath.plugins.module_utils._core.errors import Failure
from ansible_collections.kubenode.datapath.plugins.module_utils._core.plan import UndoBackend
from ansible_collections.kubenode.datapath.plugins.module_utils._files import files
from ansible_collections.kubenode.datapath.plugins.module_utils._nftables import nft_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._platform import library, sysctl
from ansible_collections.kubenode.datapath.plugins.module_utils._routing import routing_backend
from ansible_collections.kubenode.datapath.plugins.module_utils._routing.rule import Rule
from unit import journals

RUN = "import runpy, sys; program = sys.argv.pop(1); sys.argv.append('status'); runpy.run_path(program, run_name='__main__')"

_PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.binary(max_size=20)
    | st.binary(max_size=20).map(lambda raw: raw.decode("utf-8", "surrogateescape"))  # as files are read
)


def _named(values: st.SearchStrategy[t.Any]) -> st.SearchStrategy[t.Any]:
    """An object of any class that a journal can hold, with some or all of its fields set."""

    def of(kind: t.Any) -> st.SearchStrategy[t.Any]:
        usual = kind._field_defaults
        return st.fixed_dictionaries(
            {field: values for field in kind._fields if field not in usual}, optional={field: values for field in usual}
        ).map(lambda fields: kind(**fields))

    return st.sampled_from(list(journals.KNOWN.values())).flatmap(of)


def _types(value: t.Any) -> t.Any:
    return [type(value), [_types(one) for one in value]] if isinstance(value, tuple) else type(value)


_ANY = st.recursive(_PLAIN, lambda inner: st.lists(inner, max_size=3).map(tuple) | _named(inner), max_leaves=15)


@given(_named(_ANY))
def test_every_operation_comes_back_as_it_was(operation: t.Any) -> None:
    line = codec.encode(operation, journals.KNOWN)
    again = codec.decode(line, journals.KNOWN)
    assert again == operation and type(again) is type(operation)
    assert "\n" not in line and line.isascii()


NOTED = [
    (files.Remove("/\u00e4"), '{"_files.files.Remove":{"path":"/\\u00e4"}}'),
    (Rule(2, 7, table=9), '{"_routing.rule.Rule":{"family":2,"priority":7,"table":9}}'),
    (Rule(2, 7, sport=(1, 2)), '{"_routing.rule.Rule":{"family":2,"priority":7,"sport":[1,2]}}'),
    (b"\x0a\xff", '{"bytes":"0aff"}'),
    ((frozenset({3, 1}), frozenset()), '[{"set":[1,3]},{"set":[]}]'),
    (((1, True, None), (), (b"",)), '[[1,true,null],[],[{"bytes":""}]]'),
]


@pytest.mark.parametrize(("value", "line"), NOTED, ids=[line for _value, line in NOTED])
def test_a_line_names_the_class_and_what_is_not_as_usual(value: t.Any, line: str) -> None:
    """As an older or a newer version of the collection reads it."""
    assert codec.encode(value, journals.KNOWN) == line
    assert codec.decode(line, journals.KNOWN) == value


def test_these_are_the_backends_of_the_collection() -> None:
    for found in pkgutil.walk_packages(module_utils.__path__, f"{module_utils.__name__}."):
        if not found.name.endswith("._module"):  # imports Ansible, which the oldest Python lacks
            importlib.import_module(found.name)
    own = {kind for kind in UndoBackend.__subclasses__() if kind.__module__.startswith(module_utils.__name__)}
    assert own == {*journals.BACKENDS}


def test_the_vocabulary_has_operations_and_their_values() -> None:
    assert journals.KNOWN["_routing.routing_backend.Restore"] is routing_backend.Restore
    assert journals.KNOWN["_platform.sysctl.Restore"] is sysctl.Restore
    assert journals.KNOWN["_routing.rule.Rule"] is Rule


@pytest.mark.parametrize("value", [library.Load("x"), files.Other("folder"), {"a": 1}, [1], ..., Failure("x")], ids=str)
def test_what_the_roll_back_does_not_know_is_not_written(value: t.Any) -> None:
    with pytest.raises(codec.Unreadable):
        codec.encode(files.Put("/etc/x", value), journals.KNOWN)


def test_a_type_that_is_not_in_the_vocabulary_is_named() -> None:
    with pytest.raises(codec.Unreadable, match="^_platform.library.Load is not in the vocabulary$"):
        # Put takes no operation: the codec has to refuse what the type forbids.
        codec.encode(files.Put("/etc/x", library.Load("x")), journals.KNOWN)  # type: ignore[arg-type]
    with pytest.raises(codec.Unreadable, match="^subprocess.Popen is not in the vocabulary$"):
        codec.decode('{"subprocess.Popen":{"args":"true"}}', journals.KNOWN)
    with pytest.raises(codec.Unreadable, match="^JSONDecodeError: .* column 2"):
        codec.decode("{", journals.KNOWN)


def test_classes_are_named_alike_wherever_they_were_loaded() -> None:
    vocabulary = codec.vocabulary(files.Put, routing_backend.Apply)
    assert list(vocabulary.items()) == [
        ("_files.files.Put", files.Put),
        ("_routing.routing_backend.Apply", routing_backend.Apply),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        '{"_platform.library.Remove":{"path":"/"}}',
        '{"subprocess.Popen":{"args":"true"}}',
        '{"_files.files.Remove":{"path":"/x","more":1}}',
        '{"_files.files.Remove":{}}',
        '{"_files.files.Remove":["/x"]}',
        '{"_files.files.Remove":{"path":"/x"},"_files.files.Discard":{"path":"/x"}}',
        '{"bytes":"0g"}',
        '{"bytes":1}',
        "{}",
    ],
)
def test_a_line_that_no_version_has_written_is_not_read(line: str) -> None:
    with pytest.raises(codec.Unreadable):
        codec.decode(line, journals.KNOWN)


def of_archive(path: Path, *backends: type) -> list[str]:
    """The modules in the archive of the roll-back program with these backends, which is written to ``path``."""
    loaded = [codec.name_of(kind).rpartition(".")[0] for kind in backends]
    path.write_bytes(archive("_checkpoint.rollback_program", loaded).encode("utf-8", "surrogateescape"))
    names = [name.removesuffix(".py").replace("/", ".") for name in zipfile.ZipFile(path).namelist()]
    return [name for name in names if not name.endswith("__")]


def test_the_program_has_the_backends_of_its_run_and_no_others(tmp_path: Path) -> None:
    few, every = of_archive(tmp_path / "few", files.Files, sysctl.Sysctl), of_archive(tmp_path / "every", *journals.BACKENDS)
    rooms = {name.split(".")[1] for name in few}
    assert rooms == {"_core", "_program", "_files", "_platform", "_checkpoint"} and {*few} < {*every}
    for path in ("few", "every"):
        command = [sys.executable, "-I", "-B", str(tmp_path / path), "status"]
        result = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
        assert (result.returncode, json.loads(result.stdout)["state"], result.stderr) == (0, "none", "")


def test_the_program_loads_all_that_its_backends_need_before_it_starts(tmp_path: Path) -> None:
    """nft_backend imports nfnetlink in a function; a roll-back must not depend on the archive any more."""
    of_archive(tmp_path / "program", nft_backend.Nft)
    look = f"import atexit, sys; atexit.register(lambda: print(*sys.modules)); {RUN}"
    command = [sys.executable, "-I", "-B", "-c", look, str(tmp_path / "program")]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    assert "kubenode._netlink.nfnetlink" in result.stdout.split()


TYPES = {  # a value, and the field of it that has another type than its annotation says
    "a text": (files.Put("/x", files.Content("x")), ""),
    "a link": (files.Put("/x", files.Target("/y")), ""),
    "no text": (files.Put("/x", files.Content(7)), "text is 7"),  # type: ignore[arg-type]
    "another object": (files.Put("/x", files.Other("folder")), "desired is Other"),  # type: ignore[arg-type]
    "a truth value as a number": (files.Put("/x", files.Content("x", True)), "mode is True"),
    "one number of two": (files.Put("/x", files.Content("x", 0o600, (0,))), "owner is (0,)"),  # type: ignore[arg-type]
    "an object in a list": (routing_backend.Apply(3, (files.Remove("/x"),)), "changes is (Remove"),  # type: ignore[arg-type]
    "a list as a text": (files.Remove(("/x",)), "path is ('/x',)"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize(("value", "told"), TYPES.values(), ids=TYPES)
def test_a_value_of_another_type_is_named(value: t.Any, told: str) -> None:
    if not told:
        codec.require_types(value)
        return
    with pytest.raises(codec.Unreadable, match=re.escape(told)):
        codec.require_types(value)
