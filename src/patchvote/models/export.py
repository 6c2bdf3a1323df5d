"""Export a model as one ONNX graph: its input is a photo, its outputs are class scores and maps of votes.

The graph includes everything: resizing and the network at every scale (`export_photo`), then votes, their mean and
probabilities, whose nodes are added by the model's scorer.
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
from ..voters.export import familiarity_nodes
from .export_photo import FeatureMaps
from .model import Model

if TYPE_CHECKING:
    import onnx


def export_model(model: Model, path: str | Path, *, network: str | None = None) -> onnx.ModelProto:
    """Write a model as one ONNX graph, and return it.

    The input is ``photo``, uint8 of shape (height, width, 3), RGB, upright. The outputs are ``scores`` and
    ``probability`` of shape (classes,), and for each scale a map of votes ``votes_<side>`` of shape (classes, rows,
    columns). If the model has a familiarity, ``familiarity`` of shape (1,) is an output as well. The metadata holds
    classes, thresholds and recipe.

    Parameters
    ----------
    model : Model
        Model of `MomentRidge`, `SNBNL` or `NBNL` with `dense` bags.
    path : path
        File to write.
    network : str, optional
        Name of the network, where the model was read from a file and its network is not embedded.

    Raises
    ------
    PatchvoteError
        The model cannot be exported as one graph; the message gives the reason.
    """
    import onnx

    if not isinstance(model.recipe.sampling, Dense):
        raise PatchvoteError("a model of patches cannot be one graph: it reads parts of a photo one by one. Use dense.")
    graph = GraphBuilder()
    maps = FeatureMaps(graph, network or model.recipe.network, model.recipe.activation)
    if maps.spec.fingerprint != model.fingerprint:
        raise PatchvoteError(
            f"the model was made with another network than {maps.spec.name} (checksum of weights and settings "
            f"{model.fingerprint}, not {maps.spec.fingerprint}): its answers would mean nothing. "
            "Name the network that it was made with."
        )
    if maps.spec.whole == "class":
        raise PatchvoteError(
            "a model whose network describes the whole photo by its class token cannot be one graph. Fit it without "
            "whole=class."
        )
    exported = _build(model, model.recipe.sampling, graph, maps)
    onnx.checker.check_model(exported, full_check=True)
    write_file(Path(path), [exported.SerializeToString()])
    return exported


def _build(model: Model, sampling: Dense, graph: GraphBuilder, maps: FeatureMaps) -> onnx.ModelProto:
    features = maps.at(sampling.sides)
    added = model.scorer.to_onnx(graph, features, sampling.whole, model.temperature, model.threshold)
    outputs: dict[str, Sequence[int | str]] = {}
    for name, value in (("scores", added.scores), ("probability", added.probability)):
        outputs[graph.name(value, name)] = ["classes"]
    for side, value in zip(sampling.sides, added.votes, strict=True):
        outputs[graph.name(value, f"votes_{side}")] = ["classes", f"rows_{side}", f"columns_{side}"]
    metadata = {}
    if model.familiarity is not None:
        deciding = added.probability if added.unadapted is None else added.unadapted
        share = familiarity_nodes(graph, model.familiarity, features, sampling.whole, deciding)
        outputs[graph.name(share, "familiarity")] = [1]
        metadata["familiarity_threshold"] = json.dumps(model.limit())
    metadata |= {
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
        metadata=metadata,
    )
