"""The vote as layers of PyTorch, graphs in ONNX as modules, and sNBNL on a device of torch."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from patchvote import SNBNL, NetworkError, PatchvoteError  # noqa: E402
from patchvote.networks.embedded import build  # noqa: E402
from patchvote.networks.graph import cut, tail  # noqa: E402
from patchvote.nn import ML3, SMM, ML3Conv2d, VoteHead  # noqa: E402
from patchvote.nn.onnx_module import OnnxModule  # noqa: E402
from patchvote.voters import ml3  # noqa: E402

torch.set_num_threads(1)  # everything here is small: waking a second thread takes longer than the work


def make_bags(count: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Bags of 4 to 9 descriptors around the centres of three classes."""
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 3
    return [rng.normal(size=(rng.integers(4, 10), 5)) + 2 * np.eye(5)[label] for label in labels], labels


@pytest.mark.parametrize("q", [1.0, 1.5, 2.0, 3.0, math.inf])
def test_the_gradient_of_ml3_is_the_slope(q):
    torch.manual_seed(0)
    layer = ML3(5, 3, prototypes=4, q=q).double()
    x = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x, weight: torch.func.functional_call(layer, {"weight": weight}, (x,)), (x, layer.weight), atol=1e-6
    )


def test_what_the_mathematics_makes_itself_stands_on_the_device_of_what_it_was_given():
    # Tensors of "meta" have a device and no numbers; mixed with those of the CPU, they raise as a card's would.
    z, labels = torch.empty(4, 3, 6, device="meta"), torch.empty(6, dtype=torch.int64, device="meta")
    scores, gradient = ml3.phi_and_gradient(z, math.inf)
    results = [scores, gradient, *ml3.softmax_loss(scores, labels), *ml3.hinge_loss(scores, labels)]
    assert {result.device.type for result in results} == {"meta"}


def test_votes_are_those_of_the_shared_mathematics_in_rows_and_in_every_cell_of_a_map():
    torch.manual_seed(0)
    layer, x = ML3Conv2d(5, 3, prototypes=4), torch.randn(2, 5, 3, 4)
    cells = x.movedim(1, -1).reshape(-1, 5)
    expected = ml3.phi(np.einsum("kcd,nd->kcn", layer.weight.detach().numpy(), cells.numpy()), 2).T
    np.testing.assert_allclose(ML3.forward(layer, cells).detach().numpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(layer(x).movedim(1, -1).reshape(-1, 3).detach().numpy(), expected, rtol=1e-5)


def test_100_steps_of_the_optimiser_give_the_prototypes_of_snbnl():
    bags, labels = make_bags(30)
    voter = SNBNL(3, curvature=2.0, alpha=0.01, batch_size=10**6, max_iter=100)
    starts: list[np.ndarray] = []
    original = voter._first_prototypes
    voter._first_prototypes = lambda data, rng: starts.append(original(data, rng).copy()) or starts[-1].copy()
    voter.fit(bags, labels)
    assert voter.steps_ == 100
    x = torch.from_numpy((np.concatenate(bags) - voter.mean_) * voter.scale_)
    y = torch.from_numpy(np.repeat(labels, [len(bag) for bag in bags]))
    layer = ML3(x.shape[1], 3, prototypes=3).double()
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(starts[-1]))
    optimiser = SMM(layer.parameters(), curvature=2.0, lam=0.01)
    for _ in range(100):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(layer(x), y).backward()
        optimiser.step()
    np.testing.assert_allclose(layer.weight.detach().numpy(), voter.weights_, atol=1e-5)


def test_the_optimiser_leaves_gradients_as_they_are_and_takes_a_closure():
    weight, no_gradient = torch.nn.Parameter(torch.tensor([1.0, -2.0])), torch.nn.Parameter(torch.ones(1))
    optimiser = SMM([weight, no_gradient], curvature=2.0, lam=0.1)

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        value = (weight**2).sum()
        value.backward()
        return value

    assert optimiser.step(loss).item() == 5
    assert weight.grad.tolist() == [2, -4]
    assert no_gradient.tolist() == [1]


def test_the_head_gives_the_mean_vote_of_standardised_cells():
    torch.manual_seed(0)
    head, maps = VoteHead(4, 3, prototypes=2), [3 * torch.randn(8, 4, 2, 3) + 1 for _ in range(2)]
    head.standardise(maps)
    cells = torch.cat([x.movedim(1, -1).flatten(0, 2) for x in maps])
    standard = (cells - head.mean) / (head.variance + 1e-5) ** 0.5
    torch.testing.assert_close(standard.mean(0), torch.zeros(4), atol=1e-5, rtol=0)
    torch.testing.assert_close(standard.std(0, correction=0), torch.ones(4), atol=1e-5, rtol=0)
    votes = ML3.forward(head.vote, standard[: 8 * 6]).reshape(8, 6, 3)
    torch.testing.assert_close(head(maps[0]), votes.mean(1))


def test_a_head_follows_features_that_drift_as_batch_normalisation_does():
    torch.manual_seed(0)
    head, norm = VoteHead(4, 3, prototypes=2, momentum=0.1), torch.nn.BatchNorm2d(4, affine=False)
    for step in range(50):
        x = torch.randn(8, 4, 5, 6) * (1 + step / 50) + step / 10
        torch.testing.assert_close(head(x), head.vote(norm(x)).mean(dim=(2, 3)))
    head.eval()
    norm.eval()
    torch.testing.assert_close(head(x), head.vote(norm(x)).mean(dim=(2, 3)))
    still = VoteHead(4, 3)
    assert repr(still) != repr(VoteHead(4, 3, momentum=0.1))  # by which a checkpoint knows a head


def test_without_torch_one_line_says_what_to_install():
    code = "import sys; sys.modules['torch'] = None\nimport patchvote.nn"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.strip().endswith("pip install 'patchvote[torch]'")


@pytest.mark.parametrize(
    ("op", "inputs", "attributes"),
    [
        ("Clip", ["x", "", "high"], {}),
        ("Clip", ["x", "low", "high"], {}),
        ("Flatten", ["x"], {"axis": 2}),
        ("Flatten", ["x"], {"axis": 0}),
        ("MaxPool", ["x"], {"kernel_shape": [2, 2], "dilations": [2, 2], "strides": [1, 1]}),
    ],
)
def test_operations_with_unusual_settings_give_what_onnx_runtime_gives(op, inputs, attributes):
    import onnxruntime

    x = np.random.default_rng(0).normal(size=(2, 3, 6, 6)).astype(np.float32)
    model = small_graph(op, inputs, attributes)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    np.testing.assert_allclose(OnnxModule(model)(torch.from_numpy(x)).numpy(), session.run(None, {"x": x})[0])


def small_graph(op: str, inputs: list[str], attributes: dict):
    """A graph of one operation, beside a weight `low` and a constant node `high`."""
    from onnx import TensorProto, helper, numpy_helper

    low, high = (numpy_helper.from_array(np.float32(value), name) for name, value in (("low", -0.25), ("high", 0.5)))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "y")]
    nodes = [helper.make_node("Constant", [], ["high"], value=high), helper.make_node(op, inputs, ["y"], **attributes)]
    graph = helper.make_graph(nodes, "one", ends[:1], ends[1:], [low])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_an_operation_that_is_not_known_is_named():
    with pytest.raises(NetworkError, match="Erf cannot be run in torch here"):
        OnnxModule(small_graph("Erf", ["x"], {}))


def test_a_tail_cannot_begin_inside_a_block():
    embedded = cut(build("efficientnet-lite0"), "features")
    for tensor, says in (("expand14", "it also needs 'image'"), ("block99", "no tensor 'block99'")):
        with pytest.raises(NetworkError, match=says):
            tail(embedded, tensor)


def test_snbnl_learns_the_same_on_a_device_of_torch_from_arrays_and_tensors(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("patchvote.nn")]:
        monkeypatch.setitem(sys.modules, name, None)  # the core needs nothing of the layers
    bags, labels = make_bags(40)
    here = SNBNL(3, batch_size=100, random_state=3).fit(bags, labels)
    there = SNBNL(3, batch_size=100, random_state=3).set_options(device="cpu")
    there.fit([torch.from_numpy(bag) for bag in bags], labels)
    assert there.temperature_ == pytest.approx(here.temperature_, rel=1e-4)
    for _ in range(2):
        np.testing.assert_allclose(there.weights_, here.weights_, atol=1e-6)
        here.partial_fit(bags[:5], labels[:5])
        there.partial_fit(bags[:5], labels[:5])


def test_a_device_that_cannot_be_used_is_named_before_any_work(monkeypatch):
    import array_api_compat

    bags, labels = make_bags(20)
    with pytest.raises(PatchvoteError, match="torch cannot use the device 'quantum' here"):
        SNBNL(2).set_options(device="quantum").fit(bags, labels)
    monkeypatch.delattr(array_api_compat, "torch", raising=False)
    monkeypatch.setitem(sys.modules, "array_api_compat.torch", None)
    with pytest.raises(PatchvoteError, match=r"pip install 'patchvote\[torch\]'"):
        SNBNL(2).set_options(device="cpu").fit(bags, labels)
