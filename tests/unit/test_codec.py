# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a journal keeps comes back as it was, and nothing else comes back at all."""

from __future__ import annotations

import subprocess
import sys
import typing as t
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubenode.datapath.plugins.module_utils._agent import rollback
from ansible_collections.kubenode.datapath.plugins.module_utils._model import codec
from ansible_collections.kubenode.datapath.plugins.module_utils._model.problem import Failure
from ansible_collections.kubenode.datapath.plugins.module_utils._resources.boot_program import archive
from ansible_collections.kubenode.datapath.plugins.module_utils._system import files, library, netlink, sysctl

_PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.binary(max_size=20)
    | st.binary(max_size=20).map(lambda raw: raw.decode("utf-8", "surrogateescape"))  # as files are read
)


def _named(values: st.SearchStrategy[t.Any]) -> st.SearchStrategy[t.Any]:
    """Any class of the vocabulary, with some of its fields, or all, given."""

    def of(kind: t.Any) -> st.SearchStrategy[t.Any]:
        usual = kind._field_defaults
        return st.fixed_dictionaries(
            {field: values for field in kind._fields if field not in usual},
            optional={field: values for field in usual},
        ).map(lambda fields: kind(**fields))

    return st.sampled_from(list(rollback.KNOWN.values())).flatmap(of)


def _types(value: t.Any) -> t.Any:
    return [type(value), [_types(one) for one in value]] if isinstance(value, tuple) else type(value)


_ANY = st.recursive(_PLAIN, lambda inner: st.lists(inner, max_size=3).map(tuple) | _named(inner), max_leaves=15)


@given(_named(_ANY))
def test_every_operation_comes_back_as_it_was(operation: t.Any) -> None:
    line = codec.encode(operation, rollback.KNOWN)
    again = codec.decode(line, rollback.KNOWN)
    assert again == operation and type(again) is type(operation)
    assert "\n" not in line and line.isascii()


def test_the_vocabulary_has_what_undoes_a_step_of_every_edge() -> None:
    assert {name.rpartition(".")[0] for name in rollback.KNOWN if name.startswith("_system.")} == {
        f"_system.{edge}" for edge in ("files", "link_messages", "netlink", "nft", "resolved", "sysctl", "units")
    }
    assert rollback.KNOWN["_system.netlink.Restore"] is netlink.Restore
    assert rollback.KNOWN["_system.sysctl.Restore"] is sysctl.Restore


@pytest.mark.parametrize("value", [library.Load("x"), files.Other("folder"), {"a": 1}, [1], ..., Failure("x")], ids=str)
def test_what_the_roll_back_does_not_know_is_not_written(value: t.Any) -> None:
    with pytest.raises(codec.Unreadable):
        codec.encode(files.Put("/etc/x", value), rollback.KNOWN)


def test_what_is_not_in_the_vocabulary_is_named() -> None:
    with pytest.raises(codec.Unreadable, match="^_system.library.Load is not in the vocabulary$"):
        codec.encode(files.Put("/etc/x", library.Load("x")), rollback.KNOWN)
    with pytest.raises(codec.Unreadable, match="^subprocess.Popen is not in the vocabulary$"):
        codec.decode('{"subprocess.Popen":{"args":"true"}}', rollback.KNOWN)
    with pytest.raises(codec.Unreadable, match="column 2"):
        codec.decode("{", rollback.KNOWN)


def test_classes_are_named_alike_wherever_they_were_loaded() -> None:
    vocabulary = codec.vocabulary(files.Put, netlink.Apply)
    assert list(vocabulary.items()) == [("_system.files.Put", files.Put), ("_system.netlink.Apply", netlink.Apply)]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        '{"_system.library.Remove":{"path":"/"}}',
        '{"subprocess.Popen":{"args":"true"}}',
        '{"_system.files.Remove":{"path":"/x","more":1}}',
        '{"_system.files.Remove":{}}',
        '{"_system.files.Remove":["/x"]}',
        '{"_system.files.Remove":{"path":"/x"},"_system.files.Discard":{"path":"/x"}}',
        '{"bytes":"0g"}',
        '{"bytes":1}',
        "{}",
    ],
)
def test_what_nobody_has_written_so_is_not_read(line: str) -> None:
    with pytest.raises(codec.Unreadable):
        codec.decode(line, rollback.KNOWN)


def test_the_program_is_whole(tmp_path: Path) -> None:
    program = tmp_path / "rollback.pyz"
    program.write_bytes(archive("rollback").encode("utf-8", "surrogateescape"))
    done = subprocess.run(
        [sys.executable, "-I", "-B", program, "ready"], capture_output=True, text=True, check=False, cwd="/"
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready\n", "")
