"""What a file is that was taken for a model, in words, and what to do with it.

A wrong path is the most frequent mistake, and "not in the safetensors format" helps nobody who typed a photo's name.
The first bytes of a file tell what it is, whatever its name says; nothing is decoded.
"""

from __future__ import annotations

from pathlib import Path

from ..bags.shards import FORMAT, shard_files
from ..utils.marks import Kind, kind_of
from ..utils.reading import open_regular
from ..utils.tensors import read_header

_HEAD = 4096  # bytes that are looked at
_PHOTOS = (  # first bytes of photos
    (b"\xff\xd8\xff", "a JPEG photo"),
    (b"\x89PNG\r\n\x1a\n", "a PNG picture"),
    (b"GIF8", "a GIF picture"),
    (b"BM", "a BMP picture"),
    (b"II*\0", "a TIFF picture"),
    (b"MM\0*", "a TIFF picture"),
)
_OTHERS = (
    (b"PK\x03\x04", "a zip file, such as a model of torch or Keras"),
    (b"\x80\x02", "a pickle, such as a model of torch or scikit-learn"),
    (b"\x80\x03", "a pickle, such as a model of torch or scikit-learn"),
    (b"\x80\x04", "a pickle, such as a model of torch or scikit-learn"),
    (b"\x80\x05", "a pickle, such as a model of torch or scikit-learn"),
    (b"\x89HDF", "an HDF5 file, such as a model of Keras"),
    (b"%PDF", "a PDF"),
    (b"\x1f\x8b", "a gzip file"),
    (b"version https://git-lfs", "the placeholder of a file that git-lfs has not fetched (try `git lfs pull`)"),
)
_OF_KIND = {  # files of patchvote, and what to do with them
    Kind.report: "It says at its end which model it is about.",
    Kind.graph: "A graph cannot be turned back into a model: use the .patchvote file that it was exported from.",
}
_FIT = "`patchvote fit PHOTOS MODEL` makes a model."
_ORDER = f"The model comes first, then the photos. {_FIT}"
_NETWORK = f"If it is a network, `--network` takes it. {_FIT}"


def what_it_is(path: Path) -> str | None:
    """Return in words what a file or folder is, and what to try; None where it may be a damaged model.

    Raises
    ------
    OSError
        The file cannot be read.
    """
    if path.is_dir():
        if shard_files(path):
            return f"a store of descriptors, which `patchvote extract` made. {_FIT}"
        return f"a folder. `patchvote fit {path} MODEL` makes a model of labelled photos in it."
    with open_regular(path) as file:
        head = file.read(_HEAD)
    if not head:
        return f"an empty file. {_FIT}"
    if head[8:9] == b"{":
        return _of_tensors(path)
    if (kind := kind_of(path)) is not None:
        return f"{kind.value} of patchvote. {_OF_KIND.get(kind, _FIT)}"
    return _by_content(head)


def _of_tensors(path: Path) -> str | None:
    """Return what a file in the format of models is; None where it is a model, perhaps a damaged one."""
    if kind_of(path) is Kind.model:
        return None
    try:
        with open_regular(path) as file:
            metadata, _ = read_header(file)
    except ValueError:
        return None
    if metadata.get("format") == FORMAT:
        return f"a part of a store of descriptors, which `patchvote extract` made. {_FIT}"
    return f"a safetensors file of another program. {_FIT}"


def _by_content(head: bytes) -> str | None:
    for start, words in _PHOTOS:
        if head.startswith(start):
            return f"{words}. {_ORDER}"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return f"a WebP picture. {_ORDER}"
    if head[4:8] == b"ftyp":
        return f"a photo or video (HEIC, AVIF or MP4). {_ORDER}"
    for start, words in _OTHERS:
        if head.startswith(start):
            return f"{words}. {_FIT}"
    if head[:1] == b"\x08" and head[2:3] in (b"\x12", b"\x3a"):  # ModelProto: ir_version, then a name or the graph
        return f"an ONNX file. {_NETWORK}"
    text = head.decode("utf-8", "ignore" if len(head) == _HEAD else "replace")  # the last character may be cut off
    if "\ufffd" not in text and not any(ord(character) < ord("\t") for character in text):
        return f"a text file. {_FIT}"
    return None
