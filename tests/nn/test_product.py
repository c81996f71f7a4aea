"""Products of distributions: sums over their parts, and frequencies; the codec of composed actions there and back."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from polyak.envs.nested_spaces import parts
from polyak.envs.spaces import get_action_dim
from polyak.nn import PolicyError, Product, ProductFamily, make_family
from polyak.nn.codec import ActionCodec, ComposedCodec, make_codec
from polyak.ops.tsallis import joint_tsallis_entropy
from tests.tolerance import bound

SPACE = spaces.Dict(
    z=spaces.Box(-1, 1, (2, 2)),
    a=spaces.Tuple((spaces.Discrete(4, start=2), spaces.MultiBinary(3))),
    m=spaces.Dict(several=spaces.MultiDiscrete([3, 2], start=[1, -1]), box=spaces.Box(-2, 3, (1,))),
)
B = 50


def made(space: spaces.Space, seed: int = 0, sparse: bool = False) -> tuple[Product, list[Any]]:
    """A product, and its factors made one by one."""
    generator = torch.Generator().manual_seed(seed)
    family = make_family(space, sparse=sparse)
    assert isinstance(family, ProductFamily)
    outputs = torch.randn(B, family.n_outputs, generator=generator)
    log_std = torch.randn(family.n_deviations, generator=generator) / 2
    assert family.make_log_std(64, -1.0).tolist() == [-1.0] * family.n_deviations
    singles, start, scale = [], 0, 0
    for part in parts(space):
        continuous = isinstance(part.space, spaces.Box)
        single = make_family(
            part.space, sparse=sparse and isinstance(part.space, spaces.Discrete | spaces.MultiDiscrete)
        )
        mine, start = outputs[:, start : start + single.n_outputs], start + single.n_outputs
        deviations = log_std[scale : scale + single.n_outputs]
        scale += len(deviations) if continuous else 0
        singles.append(single(mine, deviations) if continuous else single(mine))
    assert start == family.n_outputs
    return family(outputs, log_std), singles


def columns(space: spaces.Space, actions: Tensor) -> list[Tensor]:
    """Actions [B, W] part by part, as the parts' own distributions take them."""
    split = actions.split([get_action_dim(part.space) for part in parts(space)], dim=1)
    return [
        numbers[:, 0] if isinstance(part.space, spaces.Discrete) else numbers
        for part, numbers in zip(parts(space), split, strict=True)
    ]


def test_parts_come_in_the_order_of_their_names() -> None:
    assert [part.name for part in parts(SPACE)] == ["a/0", "a/1", "m/box", "m/several", "z"]
    assert make_family(SPACE).widths == (1, 3, 1, 2, 4)


@pytest.mark.parametrize("sparse", [False, True])
def test_it_is_the_sum_of_its_parts(sparse: bool) -> None:
    product, singles = made(SPACE, sparse=sparse)
    other, others = made(SPACE, seed=1, sparse=sparse)
    torch.manual_seed(0)
    actions = product.sample()
    assert actions.shape == (B, 11)
    assert actions.dtype == torch.float32
    alone = [single.log_prob(part) for single, part in zip(singles, columns(SPACE, actions), strict=True)]
    torch.testing.assert_close(product.log_prob(actions), sum(alone))
    torch.testing.assert_close(product.entropy(), sum(single.entropy() for single in singles))
    torch.testing.assert_close(product.kl(other), sum(p.kl(q) for p, q in zip(singles, others, strict=True)))
    assert product.kl(product).abs().max() <= bound(11, 10.0)
    likeliest = zip(columns(SPACE, product.mode()), singles, strict=True)
    assert all(torch.equal(part, single.mode().float()) for part, single in likeliest)
    apart = torch.stack([single.tsallis_entropy(2.0) for single in singles], dim=1)
    torch.testing.assert_close(product.tsallis_entropy(2.0), joint_tsallis_entropy(apart, 2.0))
    torch.testing.assert_close(product.tsallis_entropy(1.0), product.entropy(), rtol=1e-5, atol=1e-4)


def test_draws_are_those_of_the_parts_one_after_the_other() -> None:
    product, singles = made(SPACE)
    torch.manual_seed(0)
    together = columns(SPACE, product.sample())
    torch.manual_seed(0)
    assert all(torch.equal(part, single.sample().float()) for part, single in zip(together, singles, strict=True))


def test_frequencies_are_the_products_of_probabilities() -> None:
    space, rows = spaces.Tuple((spaces.Discrete(3), spaces.MultiBinary(1), spaces.Box(-1, 1, (1,)))), 40_000
    family = make_family(space)
    outputs = torch.tensor([0.3, -0.5, 1.0, 0.4, 0.7]).expand(rows, -1)
    torch.manual_seed(0)
    actions = family(outputs, torch.tensor([-0.5])).sample()
    choices, coin = outputs[0, :3].softmax(0), torch.sigmoid(outputs[0, 3])
    above = (actions[:, 2] > 0.7).float()  # half of the Gaussian
    for choice in range(3):
        for side in range(2):
            p = choices[choice] * (coin if side else 1 - coin) / 2
            seen = ((actions[:, 0] == choice) & (actions[:, 1] == side)).float() * above
            assert abs(seen.mean() - p) < 5 * math.sqrt(p * (1 - p) / rows)  # five standard errors


def test_masks_are_shared_out_among_the_discrete_parts() -> None:
    product, singles = made(SPACE)
    sizes = [4, 6, 5]  # of a/0, a/1 and m/several
    generator = torch.Generator().manual_seed(0)
    masks = torch.rand(B, sum(sizes), generator=generator) < 0.5
    for start, end in ((0, 4), (4, 6), (6, 8), (8, 10), (10, 13), (13, 15)):
        masks[:, start] |= ~masks[:, start:end].any(1)
    own = dict(zip((0, 1, 3), masks.split(sizes, 1), strict=True))
    alone = [single.masked(own[i]) if i in own else single for i, single in enumerate(singles)]
    masked = product.masked(masks)
    torch.testing.assert_close(masked.entropy(), sum(single.entropy() for single in alone))
    torch.manual_seed(0)
    actions = masked.sample()
    given = zip(alone, columns(SPACE, actions), strict=True)
    torch.testing.assert_close(masked.log_prob(actions), sum(single.log_prob(part) for single, part in given))
    assert masked.log_prob(actions).isfinite().all()


def test_a_wide_gaussian_leaves_a_finite_gradient() -> None:
    family = make_family(spaces.Dict(a=spaces.Box(-1, 1, (40,)), b=spaces.Discrete(3)))
    log_std, outputs = torch.zeros(40, requires_grad=True), torch.randn(4, 43, requires_grad=True)
    family(outputs, log_std).tsallis_entropy(2.0).sum().backward()
    assert log_std.grad.isfinite().all()
    assert outputs.grad.isfinite().all()


def test_what_does_not_suit_the_parts_is_refused() -> None:
    with pytest.raises(PolicyError, match="use_sde=True: state-dependent exploration needs continuous actions"):
        make_family(SPACE, use_sde=True)
    with pytest.raises(PolicyError, match="sparse=True"):
        make_family(spaces.Dict(a=spaces.Box(-1, 1, (2,)), b=spaces.MultiBinary(2)), sparse=True)
    with pytest.raises(PolicyError, match="the same type"):
        made(SPACE)[0].kl(made(SPACE)[1][0])


# --- codec ----------------------------------------------------------------------------------------------------------


def random_space(rng: np.random.Generator, depth: int = 0) -> spaces.Space:
    kind = rng.integers(6 if depth < 3 else 4)
    if kind == 0:
        return spaces.Discrete(int(rng.integers(1, 6)), start=int(rng.integers(-3, 4)))
    if kind == 1:
        shape = tuple(rng.integers(1, 4, size=rng.integers(1, 3)))
        return spaces.MultiDiscrete(rng.integers(1, 5, size=shape), start=rng.integers(-2, 3, size=shape))
    if kind == 2:
        return spaces.MultiBinary(int(rng.integers(1, 4)))
    if kind == 3:
        low = rng.normal(size=tuple(rng.integers(1, 3, size=rng.integers(0, 3)))).astype(np.float32)
        return spaces.Box(low, low + 1, dtype=rng.choice([np.float32, np.float64]))
    children = [random_space(rng, depth + 1) for _ in range(rng.integers(1, 4))]
    if kind == 4:
        return spaces.Tuple(children)
    return spaces.Dict(dict(zip(rng.permutation(list("abc")).tolist(), children, strict=False)))


@pytest.mark.parametrize("seed", range(60))
def test_composed_actions_come_back(seed: int) -> None:
    space = spaces.Dict(first=random_space(np.random.default_rng(seed)), second=spaces.Tuple([spaces.Discrete(2)]))
    codec = make_codec(space)
    assert isinstance(codec, ComposedCodec)
    space.seed(seed)
    actions = [space.sample() for _ in range(7)]
    numbers = codec.from_env(actions)
    assert numbers.shape == (7, *codec.shape) == (7, get_action_dim(space))
    assert numbers.dtype == np.float32
    back = codec.to_env(numbers)
    for one, other in zip(back, actions, strict=True):
        assert space.contains(one)
        for part in parts(space):
            np.testing.assert_allclose(part.of(one), part.of(other), rtol=bound(), atol=0)
    np.testing.assert_array_equal(codec.from_env(back), numbers)


def test_choices_count_from_0_for_the_network_and_boxes_are_clipped() -> None:
    space = spaces.Dict(b=spaces.Box(-1, 1, (2,)), a=spaces.Discrete(3, start=5), c=spaces.Box(0, 9, (1,), np.int64))
    (action,) = make_codec(space).to_env(np.array([[2, -4, 0.5, 3.6]], np.float32))
    assert action["a"] == 7
    np.testing.assert_array_equal(action["b"], np.array([-1, 0.5], np.float32))
    np.testing.assert_array_equal(action["c"], [4])
    assert space.contains(action)
    assert type(make_codec(spaces.Discrete(2))) is ActionCodec
