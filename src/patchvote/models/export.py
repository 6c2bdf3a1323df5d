"""One ONNX graph for a whole model: a photo in, class scores and maps of votes out.

Everything that answering takes is in the graph: resizing and the network at every scale (`export_photo`), then votes,
their mean and probabilities, which the model's scorer adds itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..bags.boxes import Dense
from ..errors import PatchvoteError
from ..utils.files import write_file
from ..utils.onnx_graph import GraphBuilder
from .export_photo import FeatureMaps
from .model import Model

if TYPE_CHECKING:
    import onnx


def export_model(model: Model, path: str | Path, *, network: str | None = None) -> onnx.ModelProto:
    """Write a model as one ONNX graph, and return it.

    The graph takes ``photo``, uint8 of the shape (height, width, 3), RGB, upright. It gives ``scores`` and
    ``probability`` of the shape (classes,), and for each scale a map of votes ``votes_<side>`` of the shape
    (classes, rows, columns). Classes, threshold and recipe stand in its metadata.

    Parameters
    ----------
    model : Model
        Of `BagSVM`, `SNBNL` or `NBNL`, with `dense` bags.
    path : path
        The file to write.
    network : str, optional
        The network, where the model was read from a file and its network is not embedded.

    Raises
    ------
    PatchvoteError
        The model cannot be one graph; the message says why.
    """
    import onnx

    if not isinstance(model.recipe.sampling, Dense):
        raise PatchvoteError(
            "a model of patches cannot be one graph: it looks at parts of a photo one by one. Use dense."
        )
    graph = GraphBuilder()
    maps = FeatureMaps(graph, network or model.recipe.network, model.recipe.activation)
    if maps.spec.fingerprint != model.fingerprint:
        raise PatchvoteError(
            f"the model was made with a network of fingerprint {model.fingerprint}, but {maps.spec.name} has "
            f"{maps.spec.fingerprint}: its votes would mean nothing. Name the network that it was made with."
        )
    made = _built(model, model.recipe.sampling, graph, maps)
    onnx.checker.check_model(made, full_check=True)
    write_file(Path(path), [made.SerializeToString()])
    return made


def _built(model: Model, sampling: Dense, graph: GraphBuilder, maps: FeatureMaps) -> onnx.ModelProto:
    given = model.scorer.to_onnx(graph, maps.at(sampling.sides), sampling.whole, model.temperature, model.threshold)
    outputs: dict[str, Sequence[int | str]] = {}
    for name, value in (("scores", given.scores), ("probability", given.probability)):
        outputs[graph.name(value, name)] = ["classes"]
    for side, value in zip(sampling.sides, given.votes, strict=True):
        outputs[graph.name(value, f"votes_{side}")] = ["classes", f"rows_{side}", f"columns_{side}"]
    told = {
        "classes": json.dumps(list(model.classes)),
        "threshold": json.dumps(model.threshold),
        "recipe": model.recipe.to_json(),
        "kind": model.kind,
    }
    return graph.model(
        "patchvote",
        {"photo": ["height", "width", 3]},
        outputs,
        kinds={"photo": "UINT8"},
        opset=maps.opset,
        metadata=told,
    )
