"""Actions in parts, whose continuous ones have deviations of their own, and shares that sum to 1."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak.compat.rllib_face import PPOCatalog, PPOConfig, RLModuleSpec, Simplex, TorchDeterministic, TorchDistribution
from polyak.compat.rllib_face.models.distributions import distribution_for
from tests.worlds import World


class Asking(World):
    """Every action must be in the space."""

    length = 4

    def __init__(self, config: Any) -> None:
        self.action_space = config["actions"]

    def act(self, action: Any) -> float:
        assert self.action_space.contains(action), action
        return 1.0


def config(actions: spaces.Space, **spec: Any) -> Any:
    made = PPOConfig().environment(Asking, env_config={"actions": actions}, disable_env_checking=True)
    made.training(train_batch_size_per_learner=16, minibatch_size=8, num_epochs=1).debugging(seed=0)
    return made.rl_module(model_config={"fcnet_hiddens": [4]}, rl_module_spec=RLModuleSpec(**spec))


def test_the_density_of_a_composed_action_is_the_product_of_its_parts() -> None:
    kind = distribution_for(spaces.Tuple([spaces.Discrete(2), spaces.Box(-1.0, 1.0, (1,), np.float32)]))
    outputs = torch.tensor([[0.0, math.log(3.0), 0.5, math.log(2.0)]])  # logits of 2, a mean, a log deviation
    found = kind.from_logits(outputs)
    density = math.log(3 / 4) - math.log(2.0) - 0.5 * math.log(2 * math.pi) - 0.5 * (1.5 / 2) ** 2
    torch.testing.assert_close(found.logp(torch.tensor([[1.0, 2.0]])), torch.tensor([density]))
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75)) + 0.5 * math.log(2 * math.pi * math.e) + math.log(2.0)
    torch.testing.assert_close(found.entropy(), torch.tensor([entropy]))


@pytest.mark.filterwarnings("ignore:a rollout has n_steps")
def test_deviations_of_a_part_are_outputs_that_learn() -> None:
    actions = spaces.Dict(a=spaces.Discrete(3), b=spaces.Box(-1.0, 1.0, (2,), np.float32))
    with config(actions).build_algo() as algo:
        head = algo.get_module().pi
        before = [parameter.detach().clone() for parameter in head.parameters()]
        assert before[-1].shape == (3 + 2 * 2,)
        algo.train()
        assert (before[-1] != list(head.parameters())[-1]).all()


class Shares(TorchDistribution):
    """A Dirichlet distribution."""

    def _get_torch_distribution(self, logits: torch.Tensor) -> torch.distributions.Distribution:
        return torch.distributions.Dirichlet(logits.exp())

    @staticmethod
    def required_input_dim(space: Any, model_config: Any = None, **kwargs: Any) -> int:
        return int(space.dim)

    def to_deterministic(self) -> TorchDeterministic:
        return TorchDeterministic(self._dist.mean)


class OfShares(PPOCatalog):
    def get_action_dist_cls(self, framework: str) -> Any:
        return Shares


@pytest.mark.filterwarnings("ignore:a rollout has n_steps")
def test_shares_are_chosen_by_a_distribution_of_ones_own() -> None:
    with config(Simplex((3,)), catalog_class=OfShares).build_algo() as algo:
        algo.train()
        action = algo.compute_single_action(np.zeros(2, np.float32))
        assert algo.action_space.contains(action)
        assert algo.action_space == Simplex((3,))


def test_no_default_module_chooses_shares() -> None:
    with pytest.raises(NotImplementedError, match=r"get_action_dist_cls\(\) of a catalog"):
        config(Simplex((3,))).build_algo()


def test_a_simplex_holds_what_sums_to_one() -> None:
    space = Simplex((2, 3), concentration=[1.0, 2.0, 3.0], seed=0)
    assert space.sample().shape == (2, 3)
    assert space.contains(space.sample())
    assert not space.contains(np.full((2, 3), 0.5, np.float32))
    assert space != Simplex((2, 3))
    with pytest.raises(ValueError, match="must have 3 numbers"):
        Simplex((3,), concentration=[1.0])
