"""The vote as layers of PyTorch."""

from __future__ import annotations

import copy
import math
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from patchvote import SNBNL, Dense, Extractor, NetworkError, PatchvoteError, Recipe, Store, fill  # noqa: E402
from patchvote.networks import load  # noqa: E402
from patchvote.networks.embedded import build  # noqa: E402
from patchvote.networks.graph import cut, tail  # noqa: E402
from patchvote.nn import ML3, SMM, ML3Conv2d, VoteHead  # noqa: E402
from patchvote.nn.onnx_module import OnnxModule  # noqa: E402
from patchvote.photos.find import find_photos  # noqa: E402
from patchvote.voters import ml3  # noqa: E402
from test_voters import make_bags  # noqa: E402

torch.set_num_threads(1)  # everything here is small: waking a second thread takes longer than the work


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
    from onnx import TensorProto, helper, numpy_helper

    x = np.random.default_rng(0).normal(size=(2, 3, 6, 6)).astype(np.float32)
    bound = helper.make_node("Constant", [], ["high"], value=numpy_helper.from_array(np.float32(0.5)))
    nodes = [bound, helper.make_node(op, inputs, ["y"], **attributes)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "y")]
    low = numpy_helper.from_array(np.array(-0.25, np.float32), "low")
    graph = helper.make_graph(nodes, "one", ends[:1], ends[1:], [low])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    np.testing.assert_allclose(OnnxModule(model)(torch.from_numpy(x)).numpy(), session.run(None, {"x": x})[0])


def test_votes_are_those_of_the_shared_mathematics():
    torch.manual_seed(0)
    layer, x = ML3(5, 3, prototypes=4), torch.randn(7, 5)
    z = np.einsum("kcd,nd->kcn", layer.weight.detach().numpy(), x.numpy())
    np.testing.assert_allclose(layer(x).detach().numpy(), ml3.phi(z, 2).T, rtol=1e-5)


def test_where_nothing_excites_a_class_its_gradient_is_0_not_nan():
    layer = ML3(2, 2, prototypes=2)
    with torch.no_grad():
        layer.weight.fill_(-1.0)
    votes = layer(torch.ones(3, 2))
    votes.sum().backward()
    assert votes.abs().max() == 0
    assert layer.weight.grad.abs().max() == 0


@pytest.mark.parametrize("what", ["toy", "photos"])
def test_100_steps_of_the_optimiser_give_the_prototypes_of_snbnl(what, photo_folder):
    bags, labels = make_bags(30)
    if what == "photos":  # a frozen network
        photos = find_photos(photo_folder)[::4]
        found = Extractor(Recipe(sampling=Dense(sides=(64,))))(photos)
        bags = [found[i].values.astype(np.float64) for i in range(len(found))]
        labels = np.array([photo.label for photo in photos])
    voter = SNBNL(3, curvature=2.0, alpha=0.01, batch_size=10**6, max_iter=100).set_options(calibration=0)
    starts: list[np.ndarray] = []
    original = voter._first_prototypes
    voter._first_prototypes = lambda data, rng: starts.append(original(data, rng).copy()) or starts[-1].copy()
    voter.fit(bags, labels)
    assert voter.steps_ == 100
    x = torch.from_numpy((np.concatenate(bags) - voter.mean_) * voter.scale_)
    y = torch.from_numpy(np.repeat(np.unique(labels, return_inverse=True)[1], [len(bag) for bag in bags]))
    layer = ML3(x.shape[1], len(voter.classes_), prototypes=3).double()
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(starts[-1]))
    optimiser = SMM(layer.parameters(), curvature=2.0, lam=0.01)
    for _ in range(100):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(layer(x), y).backward()
        optimiser.step()
    np.testing.assert_allclose(layer.weight.detach().numpy(), voter.weights_, atol=1e-5)


def test_the_optimiser_leaves_gradients_as_they_are():
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    optimiser = SMM([weight, torch.nn.Parameter(torch.ones(1))], curvature=1.0, lam=0.5)  # the second has no gradient
    for _ in range(2):
        weight.grad = torch.tensor([3.0, 4.0])
        optimiser.step()
        assert weight.grad.tolist() == [3.0, 4.0]


def test_the_optimiser_computes_gradients_by_a_closure_and_returns_its_loss():
    weights = [torch.nn.Parameter(torch.tensor([1.0, -2.0])) for _ in range(2)]
    first, second = (SMM([weight], curvature=2.0, lam=0.1) for weight in weights)

    def loss() -> torch.Tensor:
        first.zero_grad()
        value = (weights[0] ** 2).sum()
        value.backward()
        return value

    for _ in range(3):
        expected = (weights[1] ** 2).sum()
        second.zero_grad()
        expected.backward()
        assert second.step() is None
        assert first.step(loss) == expected
        assert weights[0].tolist() == weights[1].tolist()


@pytest.mark.parametrize("wrong", [{"curvature": 0.0}, {"curvature": float("nan")}, {"lam": -1.0}])
def test_the_optimiser_refuses_settings_with_which_no_step_is_defined(wrong):
    with pytest.raises(ValueError, match="curvature must be above 0 and lam at least 0, got"):
        SMM([torch.nn.Parameter(torch.ones(1))], **wrong)


def test_a_convolution_votes_as_the_layer_does_in_every_cell():
    conv = ML3Conv2d(4, 3, prototypes=2)
    x = torch.randn(2, 4, 5, 6)
    flat = ML3.forward(conv, x.permute(0, 2, 3, 1))
    torch.testing.assert_close(conv(x), flat.permute(0, 3, 1, 2))


def test_the_head_gives_the_mean_of_its_vote_map_and_learns_what_levels_count():
    torch.manual_seed(0)
    head = VoteHead(4, 3, prototypes=2, positions=True, levels=2)
    coarse, fine = torch.randn(8, 4, 2, 3), torch.randn(8, 4, 4, 6)
    head.standardise([coarse, fine])
    expected = (head.vote_map(coarse).mean(dim=(2, 3)) + head.vote_map(fine).mean(dim=(2, 3))) / 2
    torch.testing.assert_close(head(coarse, fine), expected)
    cells = torch.cat([head._with_positions(one).movedim(1, -1).flatten(0, 2) for one in (coarse, fine)])
    standard = (cells - head.mean) * head.scale
    torch.testing.assert_close(standard.mean(0), torch.zeros(6), atol=1e-5, rtol=0)
    torch.testing.assert_close(standard.std(0, correction=0), torch.ones(6), atol=1e-5, rtol=0)
    head(coarse, fine)[:, 0].sum().backward()
    assert head.level_weight.grad.abs().sum() > 0
    with pytest.raises(ValueError, match="takes 2 maps, got 1"):
        head(coarse)


def test_a_head_follows_features_that_drift_as_batch_normalisation_does():
    torch.manual_seed(0)
    head, norm = VoteHead(4, 3, prototypes=2, momentum=0.1), torch.nn.BatchNorm2d(4, affine=False)
    for step in range(50):
        x = torch.randn(8, 4, 5, 6) * (1 + step / 50) + step / 10
        torch.testing.assert_close(head(x), head.vote(norm(x)).mean(dim=(2, 3)))
    x = torch.randn(2, 4, 5, 6) * 2 + 5
    head.eval()
    norm.eval()
    torch.testing.assert_close(head(x), head.vote(norm(x)).mean(dim=(2, 3)))
    still = VoteHead(4, 3)
    still(x)
    assert (still.mean == 0).all()
    assert (still.scale == 1).all()
    for wrong in ({"momentum": 2.0}, {"momentum": 0.1, "levels": 2}):
        with pytest.raises(ValueError, match="momentum must be from 0 to 1, and 0 for several levels"):
            VoteHead(4, 3, **wrong)
    assert repr(VoteHead(4, 3)) != repr(VoteHead(4, 3, momentum=0.1))  # what a checkpoint knows a head by


def test_two_stacked_layers_learn_what_one_prototype_cannot():
    torch.manual_seed(0)
    corner = torch.randint(0, 2, (300, 2)) * 2.0 - 1
    y = (corner[:, 0] * corner[:, 1] > 0).long()
    x = corner + 0.2 * torch.randn(300, 2)
    x = torch.cat([x, torch.ones(300, 1)], dim=1)

    def accuracy(model: torch.nn.Module) -> float:
        optimiser = torch.optim.Adam(model.parameters(), 0.05)
        for _ in range(200):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimiser.step()
        return float((model(x).argmax(1) == y).float().mean())

    single = accuracy(ML3(3, 2, prototypes=1, start_scale=0.5))
    stacked = accuracy(
        torch.nn.Sequential(ML3(3, 6, prototypes=1, start_scale=0.5), ML3(6, 2, prototypes=1, start_scale=0.5))
    )
    assert single < 0.9
    assert stacked > 0.97


def test_without_torch_one_line_says_what_to_install():
    hide = "import sys; sys.modules['torch'] = None\n"
    said = subprocess.run(
        [sys.executable, "-c", f"{hide}import patchvote.nn"], capture_output=True, text=True, timeout=60
    )
    assert said.returncode == 1
    assert said.stderr.strip().endswith("patchvote.nn needs torch. Install it with: pip install 'patchvote[torch]'")


# --- graphs in ONNX as modules ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def embedded():
    """The default network as a graph, built once; a test that changes it takes a copy."""
    return cut(build("efficientnet-lite0"), "features")


@pytest.mark.parametrize("size", [(64, 96), (75, 50)])
def test_a_whole_network_runs_in_torch_as_in_onnx_runtime(size, embedded):
    module = OnnxModule(embedded)
    images = np.random.default_rng(0).integers(0, 255, (2, *size, 3), dtype=np.uint8)
    net = load("efficientnet-lite0")
    with torch.no_grad():
        ours = module(torch.from_numpy(net.spec.preprocessing(images))).movedim(1, -1)
    np.testing.assert_allclose(ours.numpy(), net(images), atol=1e-4)


def test_a_tail_goes_on_where_the_trunk_ends_and_is_written_back_once_trained(embedded):
    model = copy.deepcopy(embedded)
    trunk, rest = cut(model, "block14"), OnnxModule(tail(model, "block14"))
    x = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        whole = OnnxModule(model)(x)
        torch.testing.assert_close(rest(OnnxModule(trunk)(x)), whole)
        for weight in rest.parameters():
            weight.mul_(1.01)
        changed = rest(OnnxModule(trunk)(x))
        rest.write_back(model)
        torch.testing.assert_close(OnnxModule(model)(x), changed)
    assert not torch.allclose(changed, whole)


def test_a_tail_cannot_begin_inside_a_block(embedded):
    with pytest.raises(NetworkError, match="it also needs 'image'"):
        tail(embedded, "expand14")
    with pytest.raises(NetworkError, match="no tensor 'block99'"):
        tail(embedded, "block99")


def test_an_operation_that_is_not_known_is_named():
    from onnx import TensorProto, helper

    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Erf", ["x"], ["y"])], "g", value[:1], value[1:])
    with pytest.raises(NetworkError, match="Erf cannot be run in torch here"):
        OnnxModule(helper.make_model(graph))


# --- devices ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("average", [False, True])
def test_snbnl_learns_the_same_on_a_device_of_torch(average):
    bags, labels = make_bags(40)
    settings = {"average": average, "batch_size": 100, "random_state": 3}
    here, there = (
        SNBNL(3, **settings).fit(bags, labels),
        SNBNL(3, **settings).set_options(device="cpu").fit(bags, labels),
    )
    np.testing.assert_allclose(there.weights_, here.weights_, atol=1e-6)
    assert there.temperature_ == pytest.approx(here.temperature_, rel=1e-4)
    here.partial_fit(bags[:5], labels[:5])
    there.partial_fit(bags[:5], labels[:5])
    np.testing.assert_allclose(there.weights_, here.weights_, atol=1e-6)


def test_tensors_of_torch_are_bags():
    bags, labels = make_bags(20)
    tensors = [torch.from_numpy(bag) for bag in bags]
    np.testing.assert_array_equal(SNBNL(2).fit(tensors, labels).weights_, SNBNL(2).fit(bags, labels).weights_)


def test_snbnl_learns_on_a_device_from_a_store(photo_folder, tmp_path):
    fill(tmp_path / "store", find_photos(photo_folder)[::4], Extractor(Recipe(sampling=Dense(sides=(64,)))))
    store = Store.open(tmp_path / "store")
    here, there = (SNBNL(2, batch_size=20).set_options(calibration=0, device=one).fit(store) for one in (None, "cpu"))
    np.testing.assert_allclose(there.weights_, here.weights_, atol=1e-4)


def test_the_core_needs_nothing_of_the_layers_to_learn_on_a_device(monkeypatch):
    bags, labels = make_bags(20)
    expected = SNBNL(2).set_options(calibration=0).fit(bags, labels).weights_
    for name in [name for name in sys.modules if name.startswith("patchvote.nn")]:
        monkeypatch.setitem(sys.modules, name, None)
    np.testing.assert_allclose(
        SNBNL(2).set_options(calibration=0, device="cpu").fit(bags, labels).weights_, expected, atol=1e-6
    )


def test_a_device_without_torch_is_told_with_what_to_install(monkeypatch):
    import array_api_compat

    monkeypatch.delattr(array_api_compat, "torch", raising=False)
    monkeypatch.setitem(sys.modules, "array_api_compat.torch", None)
    bags, labels = make_bags(20)
    with pytest.raises(PatchvoteError, match=r"the device 'cpu' needs torch. .* pip install 'patchvote\[torch\]'"):
        SNBNL(2).set_options(device="cpu").fit(bags, labels)


def test_a_device_that_is_not_there_is_told():
    bags, labels = make_bags(20)
    with pytest.raises(PatchvoteError, match="torch cannot use the device 'quantum' here"):
        SNBNL(2).set_options(device="quantum").fit(bags, labels)
