"""The command line.

No logic lives here: each command parses its arguments, calls a public function, and prints the result. Heavy modules
are imported inside the commands, so that `--help` is fast.

Exit codes: 0 success; 1 failure (for instance, a photo, model, voter, network, class or device does not exist); 2
invalid arguments; 3 done, but some photos were skipped, or shards of a store are damaged; 130 interrupted.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import shlex
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer

from ..errors import CacheWarning, PatchvoteError, UntypedNetworkError, WaitWarning, first_line
from ..utils.terminal import INTERRUPTION, ReaderGone, flush_output, say, show
from ..version import __version__
from .options import MistypedError, with_options
from .output import FAILED, INTERRUPTED, MISTYPED

_LEARNING = ("check", "fit", "fine-tune", "suggest", "add", "forget")
_ASKING = ("predict", "explain", "evaluate", "export")
_OTHERS = ("extract", "info", "serve", "cache", "networks", "demo")
COMMANDS = (*_LEARNING, *_ASKING, *_OTHERS)
_MODULES = {"add": "add_forget", "forget": "add_forget"}  # of commands whose module has another name


def make_app(words: Sequence[str] = ()) -> typer.Typer:
    """Return the command line with all commands, or with the one alone that the words begin with: it starts faster."""
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="Classify images by letting their local patches vote.",
        epilog="Add --debug to any command to see where an error comes from, and the warnings of libraries.",
    )
    app.callback()(_global)
    for name in [word for word in words[:1] if word in COMMANDS] or COMMANDS:
        function = name.replace("-", "_")
        module = importlib.import_module(f".{_MODULES.get(name, function)}", __package__)
        app.command(name)(with_options(getattr(module, function)))
    return app


def _version(asked: bool) -> None:
    if asked:
        show(f"patchvote {__version__}")
        raise typer.Exit


def _global(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def main() -> NoReturn:
    """Run the command line; an error becomes a short message and an exit code."""
    debug = "--debug" in sys.argv
    if debug:
        sys.argv.remove("--debug")
    if {"-q", "--quiet"} & set(sys.argv):
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # read when the hub's library is imported
    _open_streams()
    warnings.showwarning = functools.partial(_show_warning, debug, set())
    warnings.filterwarnings("ignore", module="PIL")  # `photos` refuses or handles what they warn of
    warnings.filterwarnings("ignore", message="not adapted: ")  # commands print it themselves
    code: Any = FAILED
    try:
        code = _run(sys.argv[1:])
    except ReaderGone:
        code = 0
    except (KeyboardInterrupt, Exception) as error:
        if _is_interruption(error):
            say(INTERRUPTION)
            code = INTERRUPTED
        elif debug or not isinstance(error, (PatchvoteError, OSError, MemoryError)):
            raise
        else:
            say(_message(error))
            code = MISTYPED if isinstance(error, MistypedError) else FAILED
    finally:
        _close_streams()
    if session := sys.modules.get("patchvote.networks.session"):  # only if a network was loaded
        session.exit_past_work(code if isinstance(code, int) else FAILED)
    sys.exit(code)


def _run(words: Sequence[str]) -> Any:
    """Run a command, and return its exit code."""
    # Of an empty path, the current folder would be read or written; a shell makes it of an unset variable.
    if any(not word or (word.startswith("--") and word.endswith("=")) for word in words):
        raise MistypedError(f"an argument is empty: {shlex.join(words)}")
    try:
        make_app(words)()
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            raise KeyboardInterrupt from None
        flush_output()
        return ended.code
    return 0


def _is_interruption(error: BaseException | None) -> bool:
    """Whether Ctrl-C was pressed: a library that is being imported may replace the exception by one of its own."""
    return error is not None and (isinstance(error, KeyboardInterrupt) or _is_interruption(error.__cause__))


def _message(error: PatchvoteError | OSError | MemoryError) -> str:
    """Return the message of an error; if the user has to name a network, with the option that does so."""
    if isinstance(error, OSError):  # one that was not handled where it occurred, such as a full temporary folder
        return f"patchvote: {error.filename or 'the system'}: {error.strerror or error}."
    if isinstance(error, MemoryError):
        return f"patchvote: there is not enough memory for this: {first_line(error)}."
    if isinstance(error, UntypedNetworkError) and error.network is not None:
        named = f"{error.option} {shlex.quote(error.network)}"
        return f"patchvote: {error.reason} If you know this network and trust it, name it yourself: {named}"
    return f"patchvote: {error}"


def _show_warning(
    debug: bool, shown: set[str], message: Any, category: type[Warning], filename: str, lineno: int, *_: Any
) -> None:
    """Print a warning that is written for users, once; those of libraries are for programmers: --debug shows them."""
    if issubclass(category, (CacheWarning, WaitWarning)):
        if str(message) not in shown:  # Python forgets what it showed when a library changes its filters
            say(message)
        shown.add(str(message))
    elif debug:
        say(f"{filename}:{lineno}: {category.__name__}: {message}")


def _open_streams() -> None:
    """Open streams that were closed, or files would get their numbers; print "?" for letters that a terminal lacks."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _close_streams() -> None:
    """Discard what could not be written to a stream, so that Python does not try again at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
