# Copyright: (c) 2026, kubenode.datapath contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reads some files of an archive, or of a folder, into memory. An archive is not trusted: nothing is written to disk.

An archive is read as a stream. A member with the name of a file that is wanted must be a file, or a symbolic link. A link is not
followed: it is compared with the paths of the files that were read. Devices are not opened. Archives within the archive are read,
and those within these are not.
"""

from __future__ import annotations

import gzip
import io
import lzma
import os
import posixpath
import stat
import struct
import sys
import tarfile
import typing as t
import zipfile
import zlib
from functools import partial

from .._core.errors import Invalid

MOST_MEMBERS, MOST_FILES = 200_000, 20_000  # of an archive, and of these that are wanted
MOST_BYTES = 4 << 30  # unpacked, of all members and archives together
MOST_KEPT = 32 << 20  # of all files that are wanted
LONGEST_PATH, MOST_FOLDERS = 4096, 64  # of a member; 4096 is PATH_MAX
LARGEST_ZIP = 64 << 20  # of one within an archive, which is read in memory
LARGEST_DIRECTORY = 8 << 20  # of a zip, for about 50,000 members
LARGEST_NAME = 64 << 10  # of a member of a tar, with its attributes
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # zipfile unpacks other methods without a bound on memory
MOST_RATIO, FREE_OF_RATIO = 400, 64 << 20  # bytes unpacked for each packed one, if more than so many are unpacked
MOST_MEMORY = 80 << 20  # of xz, whose highest level needs 65 MiB
CHUNK = 1 << 18
CUT = "\n...\n"  # as people write it, and as the readers of outputs understand it
EXTENSIONS = (".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar", ".zip")
_GZIP, _XZ, _ZIP, _EMPTY_ZIP = b"\x1f\x8b", b"\xfd7zXZ\x00", b"PK\x03\x04", b"PK\x05\x06"
_USTAR, _USTAR_AT = b"ustar", 257  # of the header of a tar's first member (pax(1))
_WRONG = (
    EOFError, OSError, RuntimeError, NotImplementedError, ValueError, struct.error, zlib.error, lzma.LZMAError, tarfile.TarError,
    zipfile.BadZipFile,
)  # fmt: skip
FOLDER, SYMBOLIC_LINK = "a folder", "a symbolic link"
NULL = "/dev/null"  # a link to it masks a file
UNIX, ENCRYPTED = 3, 1  # of the headers of a zip: the system that made it, and a flag
DEEPEST = 2  # parts of the path of an archive within the archive
Wanted = t.Callable[[str], int]  # takes a path that begins with the name of the archive or folder; returns the bytes to read


class Member(t.NamedTuple):
    """A member of an archive. kind: empty for a file, else what it is. target: of a symbolic link, unless it is in a zip."""

    name: str
    kind: str
    open: t.Callable[[], t.Any]
    target: str = ""


class Files(t.NamedTuple):
    """The files that are wanted, by path. cut: paths of those of which only the beginning was read, and the number of its bytes.

    unopened: the archives within archives of an archive. links: the targets, by path, of links to what was not read. In the
    texts they are CUT.
    """

    texts: dict[str, str]
    cut: dict[str, int]
    unopened: list[str]
    links: dict[str, str]


def is_archive(path: str) -> bool:
    """Whether a file has the name or the first bytes of an archive. Raises OSError."""
    if path.endswith(EXTENSIONS):
        return True
    with open(path, "rb") as file:
        start = file.read(tarfile.BLOCKSIZE)
    return start.startswith((_GZIP, _XZ, _ZIP, _EMPTY_ZIP)) or start[_USTAR_AT:].startswith(_USTAR)


def read(path: str, wanted: Wanted) -> Files:
    """Read the files of an archive. Raises Invalid, which names the member and the bound."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise Invalid("dump", path, "a folder or archive")
    reader = _Reader(wanted, status.st_size)
    with open(path, "rb") as file:
        reader.archive(file, os.path.basename(path))
    reader.resolve_links()
    return reader.files


def folder(path: str, wanted: Wanted) -> Files:
    """Read the files of a folder and its subfolders. Links are not followed, as in an archive."""
    reader = _Reader(wanted, 0)
    top, name = os.path.realpath(path), os.path.basename(os.path.abspath(path))
    for current, folders, files in os.walk(top):
        folders.sort()
        for file in sorted(files):
            inner = os.path.normpath(os.path.join(name, os.path.relpath(current, top), file))
            reader.file_of_folder(inner, os.path.join(current, file))
    reader.resolve_links()
    return reader.files


class _Reader:
    def __init__(self, wanted: Wanted, packed: int) -> None:
        self.files = Files({}, {}, [], {})
        self._wanted = wanted
        self._packed = packed
        self._members = self._files = self._unpacked = self._kept = 0
        self._member = ""  # which is read, for errors

    def archive(self, file: t.Any, name: str) -> None:
        """Read an archive, or one within it, whose name is a path."""
        stream = io.BufferedReader(_Counted(file), CHUNK)
        self._member = name
        try:
            start = stream.peek(len(_XZ))[: len(_XZ)]
            if start[:4] in (_ZIP, _EMPTY_ZIP):
                self._zip(self._in_memory(stream, name) if "/" in name else file, name)
            elif start[:2] == _GZIP:
                self._tar(_Counted(gzip.GzipFile(fileobj=stream), self.count), name)
            elif start == _XZ:
                self._tar(_Counted(_Xz(stream), self.count), name)
            else:
                self._tar(stream, name)
        except _WRONG as error:
            raise self._refusal(f"in a whole archive that can be read ({error or type(error).__name__})") from None

    def _tar(self, stream: t.Any, name: str) -> None:
        with tarfile.open(fileobj=stream, mode="r|", bufsize=CHUNK, tarinfo=_Header) as archive:
            while True:
                member = archive.next()
                if member is None:
                    return
                if member.size > MOST_BYTES:  # of which tarfile would read each block, also behind the end
                    self._member = f"{name}/{member.name}"
                    raise self._refusal(f"a member of at most {MOST_BYTES} bytes")
                archive.members.clear()  # type: ignore[attr-defined]  # which would otherwise have all of them
                self._visit(name, Member(member.name, _kind(member), partial(archive.extractfile, member), member.linkname))

    def _zip(self, file: t.BinaryIO, name: str) -> None:
        listing = _Listing(file, name)
        with zipfile.ZipFile(t.cast("t.IO[bytes]", listing)) as archive:
            listing.largest_read = sys.maxsize  # members have bounds of their own
            for member in archive.infolist():
                self._visit(name, Member(member.filename, _kind_in_zip(member), partial(self._unpack, archive, member)))

    def _visit(self, archive: str, member: Member) -> None:
        """Read a member, if it is wanted, or an archive that is not deep below the top."""
        parts = [part for part in member.name.split("/") if part not in ("", ".")]
        path = "/".join([archive, *parts])
        self._count_member(path)
        if member.name.startswith("/") or ".." in parts:
            raise self._refusal("an archive whose members are inside of it")
        is_archive = member.name.endswith(EXTENSIONS) and len(parts) <= DEEPEST
        if member.kind == FOLDER or not (is_archive or self._wanted(path)):
            return
        if member.kind == SYMBOLIC_LINK and not is_archive:
            self._keep_link(path, member.target)
        elif member.kind:
            raise self._refusal(f"a file in its archive, which is {member.kind}")
        elif not is_archive:
            self._keep(path, member.open())
        elif "/" in archive:
            self._count_file()
            self.files.unopened.append(path)
        else:
            self.archive(member.open(), path)

    def _unpack(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> t.Any:
        return _Counted(archive.open(member), self.count)

    def file_of_folder(self, inner: str, path: str) -> None:
        """Read a file of a folder, if it is wanted. inner: its path with the folder's name."""
        self._count_member(inner)
        if not self._wanted(inner):
            return
        try:
            if os.path.islink(path):
                self._keep_link(inner, os.readlink(path))
            elif os.path.isfile(path):
                with open(path, "rb", opener=_without_link) as file:
                    self._keep(inner, file)
        except OSError as error:
            raise self._refusal(f"a file that can be read ({error.strerror})") from None

    def _keep(self, path: str, file: t.BinaryIO) -> None:
        """Read a file, up to the last line within its bound."""
        most = self._wanted(path)
        content = file.read(most + 1)
        self._count_file()
        self._count_kept(min(len(content), most))
        text = content[:most].decode("utf-8", "replace")
        if len(content) > most:
            self.files.cut[path] = most
            text = text[: text.rfind("\n") + 1].rstrip("\n") + CUT
        self.files.texts[path] = text

    def _keep_link(self, path: str, target: str) -> None:
        self._count_file()
        self._count_kept(len(target))
        self.files.links[path] = target

    def resolve_links(self) -> None:
        """Give each link the text of the file to which it leads, if that file was read, and remove it from the links then."""
        texts = dict(self.files.texts)
        for path, target in [*self.files.links.items()]:
            place = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
            text = "" if place.endswith(NULL) else texts.get(place)
            self._member = path
            self._count_kept(len(text or ""))
            self.files.texts[path] = CUT if text is None else text
            if text is not None:
                del self.files.links[path]

    def _in_memory(self, stream: t.BinaryIO, name: str) -> t.BinaryIO:
        content = stream.read(LARGEST_ZIP + 1)
        if len(content) > LARGEST_ZIP:
            raise Invalid("dump", name, f"a zip of at most {LARGEST_ZIP} bytes, as it is within an archive")
        return io.BytesIO(content)

    def _count_member(self, path: str) -> None:
        """Check what holds for each member, whether it is wanted or not. path: with the names of its archives."""
        self._member = path
        self._members += 1
        if self._members > MOST_MEMBERS:
            raise self._refusal(f"one of at most {MOST_MEMBERS} members")
        if len(path) > LONGEST_PATH or path.count("/") > MOST_FOLDERS:
            raise self._refusal(f"a path of at most {LONGEST_PATH} characters and {MOST_FOLDERS} folders")

    def _count_file(self) -> None:
        self._files += 1
        if self._files > MOST_FILES:
            raise self._refusal(f"one of at most {MOST_FILES} outputs and inner archives")

    def _count_kept(self, number: int) -> None:
        self._kept += number
        if self._kept > MOST_KEPT:
            raise self._refusal(f"outputs of at most {MOST_KEPT} bytes together")

    def count(self, number: int) -> None:
        """Count bytes that were unpacked. Raises Invalid if there are too many of them."""
        self._unpacked += number
        if self._unpacked > MOST_BYTES:
            raise self._refusal(f"in an archive of at most {MOST_BYTES} bytes when unpacked")
        if self._unpacked > FREE_OF_RATIO and self._unpacked > MOST_RATIO * self._packed:
            raise self._refusal(f"in an archive that unpacks to at most {MOST_RATIO} times its size")

    def _refusal(self, allowed: str) -> Invalid:
        return Invalid("dump", self._member, allowed)


class _Counted(io.RawIOBase):
    """A stream whose bytes are counted."""

    def __init__(self, file: t.Any, count: t.Callable[[int], None] | None = None) -> None:
        self._file = file
        self._count = count

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        content = bytes(self._file.read(CHUNK if size is None or size < 0 else size) or b"")
        if self._count:
            self._count(len(content))
        return content

    def readinto(self, buffer: t.Any) -> int:
        content = self.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)


class _Listing(io.RawIOBase):
    """A zip whose list of members zipfile reads in one piece of bounded size.

    zipfile finds the size of the list in one of several records: the last one of the file, one before a comment, or that of
    zip64. The bound is on the read itself, so it holds for each of them.
    """

    def __init__(self, file: t.BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self.largest_read = LARGEST_DIRECTORY

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def read(self, size: int = -1) -> bytes:
        if size > self.largest_read:
            raise Invalid("dump", self._name, f"a zip whose list of members has at most {LARGEST_DIRECTORY} bytes")
        return self._file.read(size)


class _Xz:
    """A stream of xz with a bound on memory, which that of the standard library does not have."""

    def __init__(self, file: t.BinaryIO) -> None:
        self._file = file
        self._decompressor = self._new()

    @staticmethod
    def _new() -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MOST_MEMORY)

    def read(self, size: int) -> bytes:
        while True:
            packed = b""
            is_over, needs_input = bool(self._decompressor.eof), bool(self._decompressor.needs_input)
            if is_over:  # another stream may follow, or zeros
                packed = self._decompressor.unused_data.lstrip(b"\0") or self._file.read(CHUNK).lstrip(b"\0")
                if not packed:
                    return b""
                self._decompressor = self._new()
            elif needs_input:
                packed = self._file.read(CHUNK)
                if not packed:
                    raise EOFError("the stream of xz ends in the middle")
            content = self._decompressor.decompress(packed, size)
            if content:
                return content


class _Header(tarfile.TarInfo):
    """The header of a member of a tar. A name, attributes and a map of any size would be read into memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        header = super().frombuf(buf, encoding, errors)
        if header.size < 0 or (header.type in _OF_NAMES and header.size > LARGEST_NAME):
            raise Invalid("dump", header.name, f"a member of a tar with a name and attributes of at most {LARGEST_NAME} bytes")
        if header.type == tarfile.GNUTYPE_SPARSE:
            raise _sparse(header)
        return header

    def _proc_gnusparse_10(self, header: tarfile.TarInfo, *_of_map: t.Any) -> None:
        raise _sparse(header)


def _sparse(header: tarfile.TarInfo) -> Invalid:
    return Invalid("dump", header.name, "in an archive without sparse files, whose maps tarfile reads into memory")


_OF_NAMES = (
    tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE,
)  # fmt: skip


def _without_link(path: str, flags: int) -> int:
    """Open a file, even if it is replaced by a link after it was looked at. Raises OSError."""
    return os.open(path, flags | os.O_NOFOLLOW)


def _kind(member: tarfile.TarInfo) -> str:
    if member.isdir():
        return FOLDER
    if member.isreg() and not member.issparse():
        return ""
    if member.issym():
        return SYMBOLIC_LINK
    return "a hard link" if member.islnk() else "sparse" if member.issparse() else "a device or a FIFO"


def _kind_in_zip(member: zipfile.ZipInfo) -> str:
    mode = stat.S_IFMT(member.external_attr >> 16) if member.create_system == UNIX else 0
    if member.is_dir():
        return FOLDER
    if member.flag_bits & ENCRYPTED:
        return "encrypted"
    if member.compress_type not in METHODS:
        return "compressed by another method than deflate"
    return "" if mode in (0, stat.S_IFREG) else SYMBOLIC_LINK if mode == stat.S_IFLNK else "a device or a FIFO"
