"""Ask the Hugging Face hub, and download files into its cache, with the hub's own library (the extra ``hub``).

Everything that can go wrong on the way becomes one sentence that says what to do.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from ..errors import NetworkError, first_line
from .hub_cache import cache_folder

T = TypeVar("T")

_SECONDS = 15.0  # to wait for an answer about a file; a slow line takes one or two


class NoConnectionError(NetworkError):
    """The hub does not answer, or cannot be asked."""


def commit_and_files(repository: str, revision: str) -> tuple[str, list[str]]:
    """Return the commit that a revision has now, and the names of the repository's files.

    Raises
    ------
    NoConnectionError
        The hub does not answer, or its library is not installed.
    NetworkError
        There is no such repository or revision, or it may not be read; the message says what to do.
    """
    hub = _library()

    def ask() -> tuple[str, list[str]]:
        api = hub.HfApi(endpoint=_endpoint(), library_name="patchvote")
        info = api.model_info(repository, revision=revision or "main", timeout=_SECONDS)
        return str(info.sha), [str(sibling.rfilename) for sibling in info.siblings or ()]

    return _asked(ask, repository, revision, "")


def download(repository: str, commit: str, file: str) -> Path:
    """Download a file into the hub's cache, where it is not there yet, and return its path.

    Raises
    ------
    NoConnectionError
        The hub does not answer, the connection broke, or the hub's library is not installed.
    NetworkError
        There is no such file, or it may not be read; the message says what to do.
    """
    hub = _library()

    def fetch() -> Path:
        settings: dict[str, Any] = {"cache_dir": cache_folder(), "endpoint": _endpoint(), "etag_timeout": _SECONDS}
        return Path(hub.hf_hub_download(repository, file, revision=commit, library_name="patchvote", **settings))

    return _asked(fetch, repository, commit, file)


def _library() -> Any:
    try:
        import huggingface_hub
    except Exception as error:  # a broken installation may raise anything
        absent = isinstance(error, ModuleNotFoundError) and error.name == "huggingface_hub"
        problem = "is not installed" if absent else f"cannot be imported ({first_line(error)})"
        raise NoConnectionError(
            f"networks of the Hugging Face hub need huggingface_hub, which {problem}. Install it with: "
            "pip install 'patchvote[hub]'"
        ) from None
    return huggingface_hub


def _endpoint() -> str:
    """Return the address of the hub; the library reads this variable only once, when it is imported."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


def _asked(work: Callable[[], T], repository: str, revision: str, file: str) -> T:
    """Return the result of a call of the library; its errors become sentences."""
    from huggingface_hub import errors

    where = f"{repository}{f' at {revision}' if revision else ''}"
    try:
        with _silent():
            return work()
    except errors.GatedRepoError:
        raise NetworkError(
            f"{repository} is gated: its owner wants you to accept a licence first. Open {_endpoint()}/{repository}, "
            "accept it, and log in on this machine with: hf auth login"
        ) from None
    except errors.RepositoryNotFoundError:
        raise NetworkError(
            f"the hub has no repository {repository}, or it is private. Is the name right (owner/name)? For a private "
            "one, log in with: hf auth login"
        ) from None
    except errors.RevisionNotFoundError:
        raise NetworkError(
            f"{repository} has no revision {revision!r}. Name a branch, a tag or a commit of 40 digits, or leave "
            f"@{revision} out."
        ) from None
    except errors.EntryNotFoundError as error:
        if isinstance(error, errors.LocalEntryNotFoundError):  # also where the hub does not answer
            raise _unreachable(where, file, error.__cause__ or error) from None
        raise NetworkError(f"{where} has no file {file}. Its page lists them: {_endpoint()}/{repository}") from None
    except Exception as error:  # HfHubHTTPError, or what the library under the library raises
        raise _unreachable(where, file, error) from None


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep the library's log from the terminal: what matters in it is in our messages. Its progress bars stay."""
    from huggingface_hub.utils import logging as log

    before = log.get_verbosity()
    log.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        log.set_verbosity(before)


def _unreachable(where: str, file: str, error: BaseException) -> NoConnectionError:
    what = f"{file} of {where}" if file else where
    return NoConnectionError(
        f"{what} could not be read from the hub ({_endpoint()}): {first_line(error)[:300]}. Is there a connection? Try "
        "again: what was downloaded is kept. Without a connection, a network works once it was downloaded."
    )
