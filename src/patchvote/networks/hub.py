"""Networks of the Hugging Face hub, as ONNX files, without torch.

A name is ``hf:owner/name[@revision][/file.onnx][?key=value&…]``. Its files are downloaded into the hub's own cache by
the hub's own library (the extra ``hub``), when the user types the name, and by nothing else. The name of the backbone
is *pinned*: it has the commit and the SHA-256 of the file, so it means the same network everywhere; models hold it.

Options: ``output`` is the tensor to read; ``size`` and ``stride`` are pixels, where the repository does not state them;
``pixels`` is a usual normalisation for a repository that does not describe its input; ``sha256`` is the digest that the
file must have.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import NetworkError, first_line
from ..utils.files import read_bytes
from ..utils.schema import brief
from .base import Activation, NetworkSpec, Preprocessing
from .feature_map import OnnxSettings, three_numbers
from .graph import find_features
from .names import CachedName, NetworkName
from .onnx_file import backbone_of, read_graph
from .session import OnnxBackbone

OPTIONS = ("output", "size", "stride", "pixels", "sha256")

# Files that a name without a file means, in this order: an image tower comes before a graph that also takes text.
_USUAL = ("onnx/vision_model.onnx", "vision_model.onnx", "onnx/model.onnx", "model.onnx")
_SETTINGS = ("preprocessor_config.json", "config.json")  # files that describe the network's input, where they exist
_MAX_BYTES = 1 << 20  # of a file of settings: most have one kilobyte, some list 21,000 classes

# Names become parts of paths and addresses: no part begins with a dot, and none has a character that needs escaping.
_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9_\-]|\.(?!\.)){0,127}"
_FILE = re.compile(rf"(?:{_PART}/){{0,8}}{_PART}")
_NAME = re.compile(rf"({_PART}/{_PART})(?:@({_PART}))?(?:/({_FILE.pattern}\.onnx))?", re.IGNORECASE)
_COMMIT, _SHA256 = re.compile(r"[0-9a-f]{40}"), re.compile(r"[0-9a-f]{64}")

# What the option ``pixels`` may be: mean and standard deviation of pixels from 0 to 1.
_PIXELS = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "clip": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "unit": ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
}


@dataclasses.dataclass(frozen=True)
class HubName:
    """The parts of the name of a network on the hub; the revision, a branch, tag or commit, may be empty."""

    repository: str
    revision: str = ""
    file: str = ""
    options: dict[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def parse(cls, name: str) -> HubName:
        """Split a name into its parts, and check them."""
        match = _NAME.fullmatch(name.removeprefix("hf:").partition("?")[0])
        if match is None:
            raise NetworkError(
                f"{name[:200]!r} does not name a network of the hub. Names have the form "
                "hf:owner/name[@revision][/file.onnx][?key=value]."
            )
        options = NetworkName.parse(name, OPTIONS).options
        if not _SHA256.fullmatch(options.get("sha256", "0" * 64)):
            raise NetworkError(f"sha256 of {name[:200]!r} must be 64 hexadecimal digits.")
        return cls(match[1], match[2] or "", match[3] or "", options)

    def __str__(self) -> str:
        options = "&".join(f"{key}={value}" for key, value in self.options.items())
        revision, file = self.revision and f"@{self.revision}", self.file and f"/{self.file}"
        return f"hf:{self.repository}{revision}{file}{options and '?'}{options}"


def load(name: str, *, activation: Activation = "after", threads: int = 1, device: str = "cpu") -> OnnxBackbone:
    """Load a network of the hub; the engine of names that begin with ``hf:``."""
    local = isinstance(name, CachedName)
    parsed, path = _graph_of(HubName.parse(name), local)

    def locate(location: str) -> Path:
        if not _FILE.fullmatch(location):
            raise NetworkError(f"{path} has weights in {location[:80]!r}, which is not a file in its folder.")
        return _fetched(parsed, posixpath.join(posixpath.dirname(parsed.file), location), local)

    model, digest = read_graph(path, locate)
    expected = parsed.options.get("sha256", digest)
    if expected != digest:
        raise NetworkError(
            f"{path} has the SHA-256 {digest}, expected {expected}: it is another file than the name means, or damaged."
        )
    pinned = dataclasses.replace(parsed, options={**parsed.options, "sha256": digest})
    settings = _settings(pinned, local)
    output = settings.output or find_features(model, pinned.repository)
    wanted = NetworkSpec(str(pinned), 0, 0, None, Preprocessing(), activation, digest, output)
    return backbone_of(model, wanted, settings, lambda: read_graph(path, locate)[0], threads=threads, device=device)


# --- files ------------------------------------------------------------------------------------------------------------


def _library() -> Any:
    try:
        import huggingface_hub.errors
        import huggingface_hub.utils
    except ImportError as error:
        raise NetworkError(
            f"the Hugging Face hub needs huggingface_hub ({first_line(error)}): pip install 'patchvote[hub]'"
        ) from None
    hub: Any = huggingface_hub
    hub.utils.logging.set_verbosity_error()  # what matters in its warnings is in our messages
    return hub


@contextlib.contextmanager
def _asking(name: HubName, file: str = "") -> Iterator[Any]:
    """Give the hub's library to a block; what it raises becomes a sentence that says what to do."""
    hub, repository = _library(), name.repository
    try:
        yield hub
    except hub.errors.RepositoryNotFoundError:
        raise NetworkError(
            f"there is no repository {repository}, or it is private or gated: accept its licence on its page, and run: "
            "hf auth login"
        ) from None
    except hub.errors.RevisionNotFoundError:
        raise NetworkError(f"{repository} has no revision {name.revision!r}.") from None
    except Exception as error:  # also what the library under the library raises
        absent, unknown = hub.errors.EntryNotFoundError, hub.errors.LocalEntryNotFoundError
        if isinstance(error, absent) and not isinstance(error, unknown):
            raise NetworkError(f"{repository} has no file {file}.") from None
        raise NetworkError(
            f"{file or 'the list of files'} of {repository} is not in the cache, and cannot be read from the hub: "
            f"{first_line(error.__cause__ or error)[:300]} Is there a connection?"
        ) from None


def _fetched(name: HubName, file: str, local: bool) -> Path:
    """Return the path of a file in the hub's cache; it is downloaded where it is not there, unless `local`."""
    revision, settings = name.revision or "main", {"library_name": "patchvote", "etag_timeout": 15}
    with _asking(name, file) as hub:
        return Path(hub.hf_hub_download(name.repository, file, revision=revision, local_files_only=local, **settings))


def _graph_of(name: HubName, local: bool) -> tuple[HubName, Path]:
    """Return a name with commit and file, and the path of the graph; ask the hub for what is not in the cache."""
    file = name.file or _usual_file(name)
    path = _fetched(name, file, local)
    return dataclasses.replace(name, revision=path.parents[file.count("/")].name, file=file), path


def _usual_file(name: HubName) -> str:
    """Return the file that a name without a file means: one with a usual name, or the only one of the repository."""
    revision = name.revision or "main"
    try:
        with _asking(name) as hub:
            info = hub.HfApi().model_info(name.repository, revision=revision, timeout=15)
    except NetworkError:
        find = _library().try_to_load_from_cache
        cached = [file for file in _USUAL if isinstance(find(name.repository, file, revision=revision), str)]
        if not cached:
            raise
        return cached[0]
    files = sorted(one.rfilename for one in info.siblings or ())
    graphs = [file for file in files if file.lower().endswith(".onnx") and _FILE.fullmatch(file)]
    usual = [file for file in _USUAL if file in graphs] or (graphs if len(graphs) == 1 else [])
    if not usual:
        raise NetworkError(
            f"{name.repository} has no ONNX file with a usual name. Its ONNX files are: "
            f"{', '.join(graphs)[:500] or 'none; look for a repository of onnx-community or Xenova'}."
        )
    return usual[0]


def is_cached(name: str) -> bool:
    """Whether a name is pinned and its graph is in the cache; no connection is made."""
    try:
        parsed, hub = HubName.parse(name), _library()
    except NetworkError:
        return False
    pinned = _COMMIT.fullmatch(parsed.revision) and parsed.file and "sha256" in parsed.options
    found = pinned and hub.try_to_load_from_cache(parsed.repository, parsed.file, revision=parsed.revision)
    return isinstance(found, str)


def cached_graphs() -> list[tuple[HubName, frozenset[str], float]]:
    """Return the networks in the cache: name with commit and file, branches that lead there, and megabytes."""
    try:
        hub = _library()
        repositories = hub.scan_cache_dir(hub.constants.HF_HUB_CACHE).repos
    except Exception:  # there is no library, or no cache
        return []
    found: list[tuple[HubName, frozenset[str], float]] = []
    for repository, revision in ((one, revision) for one in repositories for revision in one.revisions):
        files = {file.file_path.relative_to(revision.snapshot_path).as_posix(): file for file in revision.files}
        graphs = sorted((file for file in files if file.endswith(".onnx")), key=lambda file: file not in _USUAL)
        if repository.repo_type == "model" and graphs and files.keys() & set(_SETTINGS):
            name = HubName(repository.repo_id, revision.commit_hash, graphs[0])
            found.append((name, revision.refs, files[graphs[0]].size_on_disk / 1e6))
    return sorted(found, key=lambda one: str(one[0]))


# --- how pixels become the input --------------------------------------------------------------------------------------


def _settings(name: HubName, local: bool) -> OnnxSettings:
    """Return the settings that the files of a repository describe, with those of the name in their place."""
    options, pixels = name.options, name.options.get("pixels")
    if pixels is None:
        settings = described(_table(name, _SETTINGS[0], local), _table(name, _SETTINGS[1], local), name.repository)
    elif pixels in _PIXELS:
        settings = _scaled(*_PIXELS[pixels], 1 / 255)
    else:
        raise NetworkError(f"pixels must be one of {', '.join(_PIXELS)}, got {pixels[:40]!r}.")
    numbers: dict[str, Any] = {key: int(options[key]) for key in ("size", "stride") if key in options}
    return dataclasses.replace(settings, output=options.get("output"), **numbers)


def _table(name: HubName, file: str, local: bool) -> dict[str, Any]:
    """Return the content of a JSON file of settings; empty where the repository has none."""
    path = _library().try_to_load_from_cache(name.repository, file, revision=name.revision)
    if path is None:
        try:
            path = str(_fetched(name, file, local))
        except NetworkError:
            return {}
    return read_settings(path) if isinstance(path, str) else {}  # else, the library knows that there is none


def read_settings(path: str | Path) -> dict[str, Any]:
    """Return the content of an untrusted JSON file, which must be a table."""
    try:
        return dict(json.loads(read_bytes(path, _MAX_BYTES)))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise NetworkError(f"{path} is not a table in JSON: {first_line(error)[:200]}") from None


def described(preprocessor: Mapping[str, Any], config: Mapping[str, Any], name: str) -> OnnxSettings:
    """Return the settings that ``preprocessor_config.json`` and ``config.json`` describe.

    The first is written by the libraries transformers and transformers.js; timm writes ``pretrained_cfg`` into either.
    The size is that after the centre crop, where there is one. Photos themselves are never cropped.
    """
    for timm in (preprocessor.get("pretrained_cfg"), config.get("pretrained_cfg")):
        if isinstance(timm, dict):
            usual, shape = _PIXELS["imagenet"], timm.get("input_size")
            side = shape[-1] if isinstance(shape, list) and len(shape) == 3 else None
            return _scaled(timm.get("mean", usual[0]), timm.get("std", usual[1]), 1 / 255, side)
    table = preprocessor
    factor = table.get("rescale_factor", 1 / 255) if table.get("do_rescale", True) else 1.0
    mean, deviation = (table.get("image_mean"), table.get("image_std")) if table.get("do_normalize", True) else (0, 1)
    if not table or mean is None or deviation is None:
        raise NetworkError(
            f"it is not known how pixels become the input of {name}, which does not describe it. Look it up, and add "
            f"one of ?pixels={', ?pixels='.join(_PIXELS)} to the name; &size=… where the side is not 224."
        )
    if table.get("rescale_offset") is True:  # EfficientNet's: pixels from -1 to 1 before the mean is subtracted
        mean = [value + 1.0 for value in three_numbers("image_mean", mean)]
    size = (table.get("crop_size") if table.get("do_center_crop") else None) or table.get("size")
    settings = _scaled(mean, deviation, factor, size)
    return dataclasses.replace(settings, color="BGR") if table.get("do_flip_channel_order") is True else settings


def _scaled(mean: Any, deviation: Any, factor: Any, size: Any = None) -> OnnxSettings:
    """Return settings for 8-bit pixels, from those for pixels that were multiplied by `factor`."""
    if isinstance(size, dict):
        if size.get("height") != size.get("width"):
            raise NetworkError(f"images of {brief(size)} are not supported: the input must be square.")
        size = size.get("shortest_edge", size.get("height"))
    scale = three_numbers("rescale_factor", factor)[0]
    if scale <= 0:
        raise NetworkError(f"rescale_factor must be a number above 0, got {brief(factor)}.")
    means, deviations = three_numbers("image_mean", mean), three_numbers("image_std", deviation)
    return OnnxSettings(tuple(one / scale for one in means), tuple(one / scale for one in deviations), size=size)
