"""A file's bytes: plain, .gz, .xz, or the one file of a .zip; as UTF-8, whatever Unicode mark it begins with.

The name of a file says what it holds. If its first bytes say that it is something else (a .zip named .csv, UTF-16
without its mark), that is an error that names it, instead of a table with columns called `PK`.
"""

import codecs
import gzip
import io
import lzma
import os
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

from fastformer.data.standard_input import STANDARD_INPUT, Bytes, refuse_endless
from fastformer.errors import UserError

Format = Literal["csv", "tsv", "jsonl", "json", "parquet", "xlsx", "lines"]

_FORMATS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".xlsx": "xlsx",
    ".txt": "lines",
}
_BACK_TO_FRONT = ("parquet", "xlsx")  # these are not read from the first byte to the last
BOM = codecs.BOM_UTF8
_MARKS = {  # longest first: the mark of UTF-32 begins with that of UTF-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_KINDS = {  # kinds of files that are often misnamed: how they begin, and how they should be named
    b"PK\x03\x04": ("a zip file or an Excel workbook", ".zip or .xlsx"),
    b"\x1f\x8b": ("a gzip file", ".gz"),
    b"\xfd7zXZ": ("an xz file", ".xz"),
    b"PAR1": ("a Parquet file", ".parquet"),
}
BUFFER = 1 << 20
LONGEST_LINE = 1 << 30  # bytes
_COMPRESSED: dict[str, Callable[[Any], Any]] = {".gz": lambda file: gzip.GzipFile(fileobj=file), ".xz": lzma.LZMAFile}


class Layout(NamedTuple):
    """How a file is laid out, where its name and its first lines do not say."""

    format: Format | None = None
    separator: str | None = None  # of fields in CSV and TSV
    header: bool = True  # the first row of a table names its columns
    sheet: str | None = None  # of a workbook


# ---- names -----------------------------------------------------------------------------------------------------------


def format_of(name: str) -> Format:
    """The format that a file's name says; of a .zip that is the name of the file in it."""
    suffix = _suffix(_member(name) if name.lower().endswith(".zip") else name)
    if suffix not in _FORMATS:
        endings = ", ".join(_FORMATS)
        raise UserError(
            f"{name}: the name does not say what the file holds; end it in one of {endings} (and .gz, .xz or .zip), or "
            "say it with --format"
        )
    return _FORMATS[suffix]


def is_table(name: str) -> bool:
    """Whether a file's name says that it holds rows."""
    return _FORMATS.get(_suffix(name.lower().removesuffix(".zip")), "lines") != "lines"


def is_data_file(name: str) -> bool:
    """Whether a file's name says that it holds rows, or a text per line."""
    return split_name(name)[1] in _FORMATS


def split_name(name: str) -> tuple[str, str]:
    """A file's name without its endings, and the one that says its format: `a/b.csv.gz` is `a/b` and `.csv`."""
    packed = name.lower().endswith((*_COMPRESSED, ".zip"))
    plain = name[: name.rindex(".")] if packed else name
    ending = Path(plain).suffix
    return plain.removesuffix(ending), ending.lower()


def _suffix(name: str) -> str:
    """The ending of a file's name that says its format, in lower case; what says that it is compressed does not."""
    path = Path(name.lower())
    return Path(path.stem).suffix if path.suffix in _COMPRESSED else path.suffix


def reads_once(source: Any) -> bool:
    """Whether a source is gone once it is read: standard input, a named pipe, a device."""
    if not isinstance(source, str | Path):
        return False
    try:
        mode = os.stat(source).st_mode
    except (OSError, ValueError):
        return str(source) == "-"
    if stat.S_ISCHR(mode):
        refuse_endless(os.open(source, os.O_RDONLY | os.O_NONBLOCK), str(source))
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


# ---- bytes -----------------------------------------------------------------------------------------------------------


@contextmanager
def opened(name: str, format: Format | None = None) -> Iterator[Bytes]:
    """The bytes of a file: of what is in it if it is a .gz, .xz or .zip, and in UTF-8 if it is marked as UTF-16.

    Those of a `format` that is read back to front are unpacked into a file first.
    """
    with ExitStack() as stack:
        lower = name.lower()
        if lower.endswith(".zip"):
            member = _member(name)
            archive = stack.enter_context(zipfile.ZipFile(name))
            packed: Any = stack.enter_context(archive.open(member))  # typed as less than a reader needs
            file: Bytes = io.BufferedReader(packed, BUFFER)
            lower = member.lower()
        else:
            file = io.BufferedReader(stack.enter_context(open(name, "rb", buffering=0)), BUFFER)
        if (unpack := _COMPRESSED.get(Path(lower).suffix)) is not None:
            file = io.BufferedReader(unpack(file), BUFFER)
        if format in _BACK_TO_FRONT and (unpack is not None or name.lower() != lower or not file.seekable()):
            unpacked = stack.enter_context(tempfile.TemporaryFile())
            shutil.copyfileobj(file, unpacked, BUFFER)
            unpacked.seek(0)
            file = unpacked
        yield file if format in _BACK_TO_FRONT else as_utf8(file, name)


def check_kind(start: bytes, name: str, format: Format) -> None:
    """Refuse a file whose first bytes say that it is not what it is called."""
    for mark, (kind, ending) in _KINDS.items():
        if start.startswith(mark) and format not in _BACK_TO_FRONT:
            raise UserError(f"{name}: is {kind}, whatever its name says; end the name in {ending}, or convert the file")
    if len(start) >= 4 and format not in _BACK_TO_FRONT and start[1:4:2] == b"\0\0" and b"\0" not in start[0:4:2]:
        raise UserError(f"{name}: looks like UTF-16 without a byte order mark; {_convert(name, 'UTF-16LE')}")


def decode(file: Iterable[bytes], name: str) -> Iterator[str]:
    """The lines of an open file as text."""
    for number, line in enumerate(_bounded(file), 1):
        if len(line) > LONGEST_LINE:
            raise UserError(f"{name}, line {number}: is longer than a gigabyte; give a file with shorter lines")
        try:
            text = (line.removeprefix(BOM) if number == 1 else line).decode()
        except UnicodeDecodeError:
            raise not_utf8(name, f"line {number}") from None
        yield text


def _bounded(file: Iterable[bytes]) -> Iterable[bytes]:
    """The lines of a file; one without an end is given up at some length."""
    return iter(lambda: file.readline(LONGEST_LINE + 1), b"") if hasattr(file, "readline") else file


def guard(name: str, records: Iterator[Any]) -> Iterator[Any]:
    """Turn errors of the system while reading into messages that help."""
    try:
        yield from records
    except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError):
        kind, ending = ("xz", ".xz") if name.lower().endswith(".xz") else ("gzip", ".gz")
        raise UserError(
            f"{name}: not a complete {kind} file; compress it again, or take {ending} off its name"
        ) from None
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:  # damaged, compressed oddly, encrypted
        if not name.lower().endswith(".zip"):
            raise
        raise UserError(f"{name}: this zip file cannot be read ({error}); zip it again, without a password") from None
    except PermissionError as error:
        path = error.filename or name
        raise UserError(f"{path}: permission denied; make it readable, for example: chmod +r {path}") from None
    except OSError as error:
        raise UserError(f"{name}: cannot be read ({error.strerror or error}); check the disk and the path") from None


def not_utf8(name: str, place: str) -> UserError:
    """The mistake that a file has another encoding, which nobody can tell for sure."""
    return UserError(f"{name}, {place}: not UTF-8; {_convert(name, 'LATIN1')}")


def _convert(name: str, encoding: str) -> str:
    file = Path(name).name.removesuffix(".gz")
    files = "" if name == STANDARD_INPUT else f" {file} > utf8-{file}"
    return f"convert the file, for example: iconv -f {encoding} -t UTF-8{files}"


def _member(name: str) -> str:
    """The one file in a .zip; what macOS adds is none."""
    try:
        with zipfile.ZipFile(name) as archive:
            found = [one for one in archive.namelist() if not one.endswith("/") and not one.startswith("__MACOSX/")]
    except zipfile.BadZipFile:
        raise UserError(f"{name}: not a complete zip file; zip it again, or take .zip off its name") from None
    except OSError as error:
        raise UserError(f"{name}: cannot be read ({error.strerror or error}); check the disk and the path") from None
    if len(found) != 1:
        listed = f": {', '.join(found[:5])}{', …' if len(found) > 5 else ''}" if found else ""
        raise UserError(f"{name}: has {len(found)} files in it{listed}; one is read: unpack it and name the file")
    return found[0]


def as_utf8(file: Bytes, name: str) -> Bytes:
    """The same text in UTF-8, if a mark says that it is in UTF-16 or UTF-32; else the file itself."""
    try:
        start = file.peek(4)
    except (OSError, EOFError, zlib.error, lzma.LZMAError):  # reading on reports what is wrong
        return file
    encoding = next((encoding for mark, encoding in _MARKS.items() if start.startswith(mark)), None)
    return file if encoding is None else io.BufferedReader(_Recoded(file, encoding, name), BUFFER)


class _Recoded(io.RawIOBase):
    """Text in another encoding, read as UTF-8."""

    def __init__(self, file: Bytes, encoding: str, name: str):
        self.file, self.name, self.encoding = file, name, encoding
        self.decoder = codecs.getincrementaldecoder(encoding)()
        self.ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.ready:
            some = self.file.read1(BUFFER)
            try:
                self.ready = self.decoder.decode(some, final=not some).encode()
            except UnicodeError:
                raise UserError(
                    f"{self.name}: is marked as {self.encoding.upper()}, but is not; save it as UTF-8"
                ) from None
            if not some:
                break
        size = min(len(buffer), len(self.ready))
        buffer[:size], self.ready = self.ready[:size], self.ready[size:]
        return size
