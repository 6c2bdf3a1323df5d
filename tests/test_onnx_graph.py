"""Graphs are built node by node and walked through backwards."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from patchvote.networks.graph import all_nodes, inputs_of, needed_for, nodes_of
from patchvote.utils.onnx_graph import GraphBuilder


def answers(model: onnx.ModelProto, **inputs: np.ndarray) -> list[np.ndarray]:
    import onnxruntime

    onnx.checker.check_model(model, full_check=True)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)


def test_a_graph_computes_what_its_building_reads_like():
    graph = GraphBuilder()
    centred = graph.node("Sub", graph.cast("photo", "FLOAT"), graph.constant([1.0, 2.0, 3.0]))
    graph.name(graph.sum(centred, 1), "kept")
    graph.name(graph.sum(centred, 1, keep=False), "dropped")
    graph.node("Gather", centred, graph.ints(1, 0), output="turned", axis=0)
    model = graph.model(
        "small",
        {"photo": ["n", 3]},
        {"kept": ["n", 1], "dropped": ["n"], "turned": [2, 3]},
        kinds={"photo": "UINT8"},
        metadata={"classes": "[]"},
    )
    photo = np.array([[5, 5, 5], [9, 8, 7]], np.uint8)
    kept, dropped, turned = answers(model, photo=photo)
    np.testing.assert_array_equal(turned, (photo - np.array([1.0, 2.0, 3.0]))[::-1])
    np.testing.assert_array_equal(kept, turned[::-1].sum(axis=1, keepdims=True))
    np.testing.assert_array_equal(dropped, kept[:, 0])
    assert {entry.key: entry.value for entry in model.metadata_props} == {"classes": "[]"}


def test_constants_keep_their_shape_and_type_and_one_name_is_one_constant():
    graph = GraphBuilder()
    names = [graph.constant(6.0, name="six"), graph.constant(6.0, name="six"), graph.constant(7, np.int64)]
    assert names[0] == names[1] != names[2]
    assert {name: list(tensor.dims) for name, tensor in graph.constants.items()} == {"six": [], names[2]: []}
    assert graph.constants[names[2]].data_type == TensorProto.INT64
    turned = graph.constant(np.arange(6.0).reshape(2, 3).T)
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(graph.constants[turned]), [[0, 3], [1, 4], [2, 5]])


@pytest.fixture
def branched() -> onnx.GraphProto:
    """a -> b -> c, and d by a branch that reads b and passes the constant `k` on; e is of no use to them."""
    value = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    other = helper.make_tensor_value_info("k", TensorProto.FLOAT, None)
    then = helper.make_graph([helper.make_node("Neg", ["b"], ["out"])], "then", [], [value])
    nodes = [
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Exp", ["a"], ["e"]),
        helper.make_node("Clip", ["b", "", "k"], ["c"]),
        helper.make_node("If", ["c"], ["d"], then_branch=then, else_branch=helper.make_graph([], "else", [], [other])),
    ]
    return helper.make_graph(nodes, "g", [], [])


def test_what_a_tensor_is_computed_from_is_found_through_branches_too(branched):
    assert needed_for("c", branched) == ([0, 2], {"a", "b", "c", "k"})
    places, tensors = needed_for("d", branched)
    assert places == [0, 2, 3]
    assert {"a", "b", "c", "k"} <= tensors
    assert "e" not in tensors
    assert set(inputs_of(branched.node[3])) == {"c", "b", "out", "k"}
    assert [node.op_type for node in all_nodes(branched.node)] == ["Relu", "Exp", "Clip", "If", "Neg"]


def test_the_walk_ends_where_it_is_told_to(branched):
    assert needed_for("c", branched, stop={"b"}) == ([2], {"b", "c", "k"})


def test_all_nodes_of_a_model_are_those_of_branches_and_functions_too():
    part = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])
    branch = helper.make_graph([part], "branch", [], [helper.make_tensor_value_info("y", TensorProto.UINT8, ["n"])])
    choice = helper.make_node("If", ["which"], ["out"], then_branch=branch, else_branch=branch)
    called = helper.make_function("own", "Call", ["x"], ["y"], [part], [helper.make_opsetid("", 17)])
    for node, functions in ((choice, []), (helper.make_node("Call", ["x"], ["out"], domain="own"), [called])):
        graph = helper.make_graph([node], "graph", [], [])
        model = helper.make_model(graph, functions=functions)
        assert {"DynamicQuantizeLinear", node.op_type} <= {one.op_type for one in nodes_of(model)}
