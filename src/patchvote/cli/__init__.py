"""The command line.

No logic lives here: each command parses its arguments, calls a public function, and prints the result. Heavy modules
are imported inside the commands, so that `--help` is fast.

Exit codes: 0 success; 1 failure (for instance, a photo, model, voter, network, class or device does not exist); 2
invalid arguments; 3 done, but some photos were skipped, or shards of a store are damaged; 130 interrupted.
"""

from __future__ import annotations

import functools
import importlib
import os
import shlex
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn, TextIO

import typer

from ..errors import CacheWarning, PatchvoteError, UntypedNetworkError, WaitWarning, first_line
from ..utils.terminal import ANYTIME, ReaderGone, flush_output, say, show
from ..version import __version__
from .checked import Checked
from .common import FAILED, INTERRUPTED, MISTYPED, Device, Force, MistypedError
from .streams import (
    Interrupted,
    close_streams,
    interruptible,
    interruption,
    open_streams,
    replace_unknown_letters,
    replaced_sentences,
)

# Modules of the commands; the function of a command has its name.
_COMMANDS = {
    "check": "check",
    "fit": "fit",
    "fine-tune": "fine_tune",
    "predict": "predict",
    "explain": "explain",
    "evaluate": "evaluate",
    "suggest": "suggest",
    "add": "fit",
    "forget": "fit",
    "export": "export",
    "extract": "bags",
    "info": "info",
    "serve": "serve",
    "cache": "cache",
    "networks": "networks",
}


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
    named = [word for word in words[:1] if word in _COMMANDS]
    for name in named or _COMMANDS:
        module = importlib.import_module(f".{_COMMANDS[name]}", __package__)
        command = getattr(module, name.replace("-", "_"))
        app.command(name, cls=Checked)(interruptible(command))
    if not named:
        app.command("demo", cls=Checked)(interruptible(_demo))
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


def _demo(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to write into.")] = Path("demo"),
    device: Device = "cpu",
    force: Force = False,
) -> None:
    """Fit, test and explain a model on crops of a few real photos, and write it all into FOLDER."""
    from .demo import run

    kept = f"What {folder} holds is complete, and kept: run the same command again to go on."
    with interruption(f"interrupted. {kept}"):
        run(folder, device=device, force=force)


def _lines(error: PatchvoteError | OSError | MemoryError) -> list[str]:
    """Return the message of an error; if the user has to name a network, with the command that does so."""
    if isinstance(error, OSError):  # one that was not handled where it occurred, such as a full temporary folder
        return [f"patchvote: {error.filename or 'the system'}: {error.strerror or error}."]
    if isinstance(error, MemoryError):
        return [f"patchvote: there is not enough memory for this: {first_line(error)}."]
    if not isinstance(error, UntypedNetworkError) or error.network is None:
        first, *others = error.lines
        return [f"patchvote: {first}", *others]
    typed = sys.argv[1:]
    end = typed.index("--") if "--" in typed else len(typed)  # after two dashes nothing is an option
    command = shlex.join(["patchvote", *typed[:end], error.option, error.network, *typed[end:]])
    return [f"patchvote: {error.reason} If you know this network and trust it, name it yourself:", f"  {command}"]


def _show_warning(
    debug: bool,
    told: set[str],
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning that is written for users.

    Those of libraries speak to programmers, and name files of the environment: --debug shows them.
    """
    if issubclass(category, CacheWarning):  # Python forgets what it showed when a library changes its filters
        if str(message) not in told:
            say(message)
        told.add(str(message))
    elif issubclass(category, WaitWarning):
        say(message)
    elif debug:
        say(f"{filename}:{lineno}: {category.__name__}: {message}")


def main() -> NoReturn:
    """Run the command line; an error becomes a short message and an exit code."""
    debug = "--debug" in sys.argv
    if debug:
        sys.argv.remove("--debug")
    if {"-q", "--quiet"} & set(sys.argv):
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # read when the hub's library is imported
    open_streams()
    replace_unknown_letters()
    warnings.showwarning = functools.partial(_show_warning, debug, set())
    warnings.filterwarnings("ignore", module="PIL")  # `photos` refuses or handles what they warn of
    warnings.filterwarnings("ignore", message="not adapted: ")  # commands print it themselves
    code: str | int | None = FAILED
    try:
        code = _run()
    except (PatchvoteError, OSError, MemoryError) as error:
        if debug:
            raise
        say(*_lines(error))
        code = MISTYPED if isinstance(error, MistypedError) else FAILED
    except (Interrupted, KeyboardInterrupt) as error:
        say(str(error) or ANYTIME)
        code = INTERRUPTED
    except ReaderGone:
        code = 0
    finally:
        say(*replaced_sentences())
        close_streams()
    if session := sys.modules.get("patchvote.networks.session"):  # only if a network was loaded
        session.exit_past_work(code if isinstance(code, int) else FAILED)
    sys.exit(code)


def _run() -> str | int | None:
    output = sys.stdout
    try:
        make_app(sys.argv[1:])()
    except SystemExit as ended:
        if sys.stdout is not output:  # replaced, because the reader of the help, or of an error, has closed the pipe
            sys.stdout = output
            if {"-h", "--help"} & set(sys.argv):
                raise ReaderGone from None
        if ended.code == INTERRUPTED:  # outside of a command
            raise Interrupted(ANYTIME) from None
        flush_output()
        return ended.code
    return 0
