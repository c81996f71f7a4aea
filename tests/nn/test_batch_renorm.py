"""Batch renormalisation against its definition, against sb3-contrib's numbers, and as part of a program."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from polyak.nn import BatchRenorm1d, PolicyError
from polyak.nn.networks.batch_renorm import running_statistics
from tests.compat.make_sb3_files import DATA
from tests.tolerance import CANCELLATION, bound

THEIRS = np.load(DATA / "crossq.npz")


def batches(n: int, spread: float = 1.0, rows: int = 16) -> Tensor:
    """[n, rows, 4] float64: features of different means and deviations."""
    draws = np.random.default_rng(0).standard_normal((n, rows, 4))
    return torch.from_numpy(draws * [1.0, 0.3, spread, 1.0] + [0.0, 0.5, 0.0, spread])


def layer(**options: float) -> BatchRenorm1d:
    """With scale and bias that are not 1 and 0."""
    made = BatchRenorm1d(4, **options).double()
    with torch.no_grad():
        made.scale.copy_(torch.tensor([0.5, 1.0, 2.0, -1.0]))
        made.bias.copy_(torch.tensor([0.0, 1.0, -2.0, 0.5]))
    return made


def algorithm_1(x: Tensor, mean: Tensor, var: Tensor, warm: bool) -> Tensor:
    """Ioffe's definition, feature by feature, without scale and bias."""
    columns = []
    for column, mu, sigma in zip(x.T, mean.tolist(), var.sqrt().tolist(), strict=True):
        r = min(max(column.std().item() / sigma, 1 / 3), 3.0) if warm else 1.0
        d = min(max((column.mean().item() - mu) / sigma, -5.0), 5.0) if warm else 0.0
        columns.append((column - column.mean()) / column.std() * r + d)
    return torch.stack(columns, 1)


@pytest.mark.parametrize("spread", [1.0, 30.0])
@pytest.mark.parametrize("warmup_steps", [0, 3, 100])
def test_it_is_algorithm_1(warmup_steps: int, spread: float) -> None:
    norm = layer(eps=1e-15, momentum=0.1, warmup_steps=warmup_steps)
    mean, var = torch.zeros(4).double(), torch.ones(4).double()
    for step, x in enumerate(batches(6, spread)):
        x.requires_grad_()
        expected = algorithm_1(x, mean, var, warm=step > warmup_steps) * norm.scale + norm.bias
        output = norm(x)
        torch.testing.assert_close(output, expected)
        ours, theirs = (torch.autograd.grad((y**3).sum(), x)[0] for y in (output, expected))  # r and d are constants
        torch.testing.assert_close(ours, theirs)
        mean, var = 0.9 * mean + 0.1 * x.detach().mean(0), 0.9 * var + 0.1 * x.detach().var(0)
        torch.testing.assert_close(norm.ra_mean, mean)
        torch.testing.assert_close(norm.ra_var, var)
    assert norm.steps == 6


def test_within_the_bounds_training_computes_what_evaluation_does() -> None:
    norm = layer(eps=1e-15, momentum=0.5, warmup_steps=0)
    norm(batches(1)[0])
    for x in batches(4):
        evaluated = norm.eval()(x)
        torch.testing.assert_close(norm.train()(x), evaluated)


def test_evaluation_is_affine_and_changes_nothing() -> None:
    norm = layer().eval()
    norm.ra_mean += torch.arange(4)
    norm.ra_var *= 3
    before = {name: tensor.clone() for name, tensor in norm.state_dict().items()}
    x = batches(1)[0]
    expected = norm.scale * (x - torch.arange(4)) / (3 + norm.eps) ** 0.5 + norm.bias
    torch.testing.assert_close(norm(x), expected)
    torch.testing.assert_close(norm(x[:1]), expected[:1])
    assert all(torch.equal(tensor, before[name]) for name, tensor in norm.state_dict().items())


def test_without_scale_and_bias() -> None:
    norm = layer(affine=False)
    x = batches(1)[0]
    torch.testing.assert_close(norm(x), (x - x.mean(0)) / (x.var(0) + norm.eps).sqrt())


@pytest.mark.parametrize("warmup_steps", [0, 100])
def test_a_feature_that_is_constant_has_a_gradient(warmup_steps: int) -> None:
    """As behind a ReLU that lets nothing pass."""
    norm = layer(warmup_steps=warmup_steps)
    for x in batches(3):
        x[:, 2] = 0.0
        x.requires_grad_()
        output = norm(x)
        assert torch.isfinite(output).all()
        assert torch.isfinite(torch.autograd.grad((output**3).sum(), x)[0]).all()


def test_the_numbers_are_those_of_sb3_contrib() -> None:
    norm = BatchRenorm1d(3, momentum=0.2, warmup_steps=1)
    norm.scale.data, norm.bias.data = torch.tensor([0.5, 1.0, 2.0]), torch.tensor([0.0, -1.0, 3.0])
    theirs = {name.partition("/")[2]: torch.from_numpy(THEIRS[name]) for name in THEIRS if "renorm/" in name}
    x = theirs["x"].requires_grad_()
    for rows, y, gradient in zip(x, theirs["y"], theirs["gradient"], strict=True):
        output = norm(rows)
        size = max(y.abs().max().item(), 1.0)
        torch.testing.assert_close(output, y, rtol=0, atol=bound(8 + 10, size))
        ours = torch.autograd.grad((output**3).sum(), x)[0].sum(0)
        largest = gradient.abs().max().item()
        torch.testing.assert_close(ours, gradient, rtol=0, atol=bound(8 + 10, CANCELLATION * largest))
    torch.testing.assert_close(norm.ra_mean, theirs["mean"])
    torch.testing.assert_close(norm.ra_var, theirs["variance"])


def test_one_program_goes_through_the_warm_up() -> None:
    eager, traced = layer(warmup_steps=2), layer(warmup_steps=2)
    x = batches(6, 5.0)

    def step(rows: Tensor, *state: Tensor) -> Tensor:
        return torch.func.functional_call(traced, dict(zip(names, state, strict=True)), (rows,))

    names, tensors = zip(*[*traced.named_parameters(), *traced.named_buffers()], strict=True)
    program = make_fx(step, tracing_mode="fake")(x[0], *tensors)
    for rows in x:
        torch.testing.assert_close(program(rows, *tensors), eager(rows))
    for name, tensor in eager.state_dict().items():
        torch.testing.assert_close(traced.state_dict()[name], tensor)
    assert traced.steps == 6


def test_inputs_of_half_precision_are_normalised_in_whole() -> None:
    norm = BatchRenorm1d(4)
    x = batches(1)[0].bfloat16()
    output = norm(x)
    assert output.dtype == torch.float32
    torch.testing.assert_close(output, BatchRenorm1d(4)(x.float()))


def test_by_running_statistics_for_a_while() -> None:
    inner = nn.Sequential(
        nn.Linear(4, 4), BatchRenorm1d(4), nn.BatchNorm1d(4), nn.Dropout(0.5), BatchRenorm1d(4).eval()
    )
    outer = BatchRenorm1d(4)
    modes = [module.training for module in inner]
    with running_statistics(inner):
        assert [module.training for module in inner] == [True, False, False, True, False]
        assert outer.training
        inner(batches(1)[0].float())
    assert inner[1].steps == 0
    assert [module.training for module in inner] == modes
    with pytest.raises(ZeroDivisionError), running_statistics(inner):
        raise ZeroDivisionError
    assert [module.training for module in inner] == modes


def test_what_it_cannot_be_is_refused() -> None:
    for options in ({"eps": 0}, {"momentum": 1.5}, {"warmup_steps": -1}):
        with pytest.raises(PolicyError, match="batch renormalisation"):
            BatchRenorm1d(4, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"at least 2 rows of 4 features, got shape \[1, 4\]"):
        BatchRenorm1d(4)(torch.zeros(1, 4))
    with pytest.raises(ValueError, match=r"any number of rows of 4 features, got shape \[2, 3\]"):
        BatchRenorm1d(4).eval()(torch.zeros(2, 3))
