"""Options of the commands: each that several commands have is described here once.

Options that belong together are the fields of a dataclass. A command takes one parameter of that class, which
`with_options` replaces by an option per field, so that `--help` shows all of them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import itertools
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..engines import EngineName, opened_engine
from ..errors import PatchvoteError
from ..photos.outputs import Kind
from ..utils.remote import place
from ..utils.terminal import show, show_json

if TYPE_CHECKING:
    from ..bags.recipe import Recipe
    from ..classifier import ImageClassifier
    from ..utils.engine import Engine

Outputs = Sequence[tuple[Path | None, Kind]]  # files that a command writes


class MistypedError(PatchvoteError):
    """The arguments of a command are invalid or exclude each other; nothing was done."""


NewModel = Annotated[Path, typer.Argument(metavar="MODEL", parser=place, help="File to write.")]
ChangedModel = Annotated[Path | None, typer.Option("--output", help="File to write; MODEL by default.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of all random choices.")]
Insist = Annotated[bool, typer.Option("--insist", help="Adapt even if it looks unsafe.")]
Force = Annotated[bool, typer.Option("--force", help="Replace a model, a report, or any file.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write a .csv or .jsonl file.")]


@dataclasses.dataclass(frozen=True)
class Printing:
    """What is printed."""

    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but answers and errors.")] = False
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: one line, or one per photo.")] = False

    def check_output(self, output: Path | None) -> None:
        """Refuse an output that is neither .csv nor .jsonl, and one beside --json."""
        check_list(output)
        if output is not None and self.as_json:
            raise MistypedError("--json prints and --output writes a file: leave one out. A .jsonl file holds JSON.")

    def tell(self, record: dict[str, Any], *lines: str, indent: int = 0) -> None:
        """Print the result: the record as JSON, or the lines for people."""
        if self.as_json:
            show_json(record)
        elif not self.quiet:
            show(*lines, indent=indent)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelFile:
    """A model that a command reads."""

    model: Annotated[Path, typer.Argument(metavar="MODEL", parser=place, help="File of a model.")]
    network: Annotated[str | None, typer.Option(help="Network of MODEL, if it is not found by its name.")] = None
    force: Force = False

    def load(self, machine: Machine, **settings: Any) -> ImageClassifier:
        """Read the model."""
        from ..classifier import ImageClassifier

        if self.model.is_dir():
            raise MistypedError(f"{self.model} is a folder, not a model. The model comes before the photos.")
        return ImageClassifier.load(self.model, network=self.network, **machine.settings, **settings)

    def check_written(
        self, classifier: ImageClassifier, outputs: Outputs, inputs: Iterable[Path | None] = (), **more: Any
    ) -> None:
        """Refuse outputs that would replace what the command reads, or what patchvote did not write."""
        read = inputs if "updated" in more else [self.model, *inputs]
        check_written(outputs, read, classifier.recipe.network, force=self.force, **more)


@dataclasses.dataclass(frozen=True)
class Machine:
    """Where the network runs."""

    device: Annotated[str, typer.Option(help="Where the network runs: cpu, cuda (NVIDIA) or mps (Apple).")] = "cpu"
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Threads; one per core by default.")] = None

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments of a classifier or an extractor."""
        return {"device": self.device, "jobs": self.jobs}


@dataclasses.dataclass(frozen=True)
class Cluster(Machine):
    """Where photos are extracted: in this process, or by workers."""

    engine: Annotated[EngineName, typer.Option(help="local: this process. ray: workers of a Ray cluster.")] = (
        EngineName.local
    )
    address: Annotated[str | None, typer.Option(help="ray: address; $RAY_ADDRESS or a new cluster by default.")] = None
    workers: Annotated[int | None, typer.Option(min=1, help="ray: workers, each with --jobs threads.")] = None

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments of a classifier or an extractor; beside workers, one thread is enough by default."""
        return {"device": self.device, "jobs": self.jobs if self.engine is EngineName.local else self.jobs or 1}

    @contextlib.contextmanager
    def opened(self) -> Iterator[Engine | None]:
        """Yield the engine; None for this process."""
        if self.engine is EngineName.local and (self.address is not None or self.workers is not None):
            raise MistypedError("--address and --workers can be set only with --engine ray.")
        with opened_engine(self.engine, self.address, self.workers, self.jobs) as engine:
            yield engine


@dataclasses.dataclass(frozen=True)
class Cache:
    """Whether, and where, what the network computes is kept."""

    cache: Annotated[Path | None, typer.Option(help="Folder to keep what the network computes.")] = None
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep nothing of it, and use nothing kept.")] = False

    @property
    def folder(self) -> Path | bool | None:
        """The folder, None for the default, False for no cache."""
        if self.cache is not None and self.no_cache:
            raise MistypedError("--cache and --no-cache exclude each other: leave one of them out.")
        return False if self.no_cache else self.cache


@dataclasses.dataclass(frozen=True)
class Report:
    """Whether, and where, a report is written."""

    report: Annotated[Path | None, typer.Option(help="File of the report.", show_default="….html")] = None
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no report.")] = False

    def file(self, default: Path) -> Path | None:
        """Return the file of the report, or None."""
        if self.report is not None and self.no_report:
            raise MistypedError("--report and --no-report exclude each other: leave one of them out.")
        return None if self.no_report else self.report or default


@dataclasses.dataclass(frozen=True)
class Adapting:
    """Which photos are rejected, and whether the model is adapted first."""

    threshold: Annotated[
        float | None, typer.Option(min=0, max=0.999, help="Share of known photos that may be rejected.")
    ] = None
    adapt: Annotated[bool, typer.Option("--adapt", help="Adapt to PHOTOS first, of another camera or place.")] = False
    insist: Insist = False

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments of `ImageClassifier.answers` and `evaluate`."""
        check_insist(self.insist, self.adapt, "--adapt")
        if self.insist and self.threshold is not None:
            raise MistypedError("--threshold and --insist exclude each other: an insisted model rejects no photo.")
        return {"threshold": self.threshold, "adapt": self.adapt, "insist": self.insist}


@dataclasses.dataclass(frozen=True)
class Describing:
    """How photos are described."""

    network: Annotated[str, typer.Option(help="A name of `patchvote networks`, an ONNX file, hf:…, torch:…")] = (
        "efficientnet-lite0"
    )
    mode: Annotated[Literal["dense", "patch"], typer.Option(help="dense: all cells. patch: the paper's patches.")] = (
        "dense"
    )

    def recipe(self) -> Recipe | str:
        """Return the recipe; for dense, the network's name, since a network of one size then gets one scale."""
        if self.mode == "dense":
            return self.network
        from ..bags.boxes import Patch
        from ..bags.recipe import Recipe

        return Recipe(self.network, Patch())


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of a command that is a dataclass by an option per field."""
    parameters = _parameters(command)
    classes: dict[str, Any] = {
        name: one.annotation for name, one in parameters.items() if dataclasses.is_dataclass(one.annotation)
    }
    groups = {name: _parameters(group) for name, group in classes.items()}

    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = classes[name](**{option: values.pop(option) for option in group})
        command(**values)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    options = [one for name, single in parameters.items() for one in groups.get(name, {name: single}).values()]
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    return run


def _parameters(called: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a function or class, with their types."""
    types = typing.get_type_hints(called, include_extras=True)
    parameters = inspect.signature(called).parameters
    return {name: one.replace(kind=one.KEYWORD_ONLY, annotation=types[name]) for name, one in parameters.items()}


def check_insist(insist: bool, needs: object, option: str) -> None:
    """Refuse --insist if nothing is to be adapted."""
    if insist and not needs:
        raise MistypedError(f"--insist can be used only with {option}: it adapts even if that looks unsafe.")


def check_list(output: Path | None) -> None:
    """Refuse a list that is neither .csv nor .jsonl."""
    if output is not None and output.suffix.lower() not in (".csv", ".jsonl"):
        raise MistypedError(f"--output writes .csv or .jsonl, got {output}.")


def numbers_of(option: str, text: str) -> tuple[int, ...]:
    """Return the whole numbers that an option lists."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise MistypedError(f"{option} takes whole numbers and commas, such as 224,448; got {text!r}.") from None


def check_written(outputs: Outputs, inputs: Iterable[Path | None], network: str, *, force: bool, **more: Any) -> None:
    """Refuse outputs that would replace what the command reads, or what patchvote did not write (`check_outputs`)."""
    from ..networks.names import network_files
    from ..photos.outputs import check_outputs

    check_outputs(outputs, itertools.chain(inputs, network_files(network)), force=force, **more)
