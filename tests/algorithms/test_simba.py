"""SimBa: its networks by their equations, its statistics by those of all observations, and what its updates read."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak import SAC, SimBa
from polyak.envs import make_vec_env
from polyak.experience import Transition
from polyak.nn import PolicyError
from polyak.nn.networks.residual import ResidualBlock, RunningNorm, residual_layers
from polyak.nn.policies.simba import SimBaActor, SimBaCritic, SimBaPolicy
from tests.pairs import one_of_each
from tests.tolerance import bound
from tests.worlds import World

ARCH = {"pi": [8], "qf": [8, 8]}


def model(env: Any = "Pendulum-v1", **options: Any) -> SimBa:
    settings = {"policy_kwargs": {"net_arch": ARCH}, "buffer_size": 500, "batch_size": 16, "learning_starts": 20}
    return SimBa("MlpPolicy", env, device="cpu", seed=0, compile=False, **{**settings, **options})


# -- running statistics ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [[1] * 40, [8] * 5, [1, 30, 2, 7]])
def test_the_statistics_are_those_of_all_rows(sizes: list[int]) -> None:
    rows = torch.from_numpy(np.random.default_rng(0).normal([5.0, 0.0, -100.0], [1.0, 0.0, 30.0], (40, 3))).float()
    norm = RunningNorm(3)
    for batch in rows.split(sizes):
        norm.update(batch)
    size = rows.abs().amax(0).double()
    assert norm.count == 40
    assert ((norm.mean - rows.double().mean(0)).abs() <= bound(2 * len(sizes)) * size).all()
    assert ((norm.var - rows.double().var(0, correction=0)).abs() <= bound(4 * len(sizes)) * size**2).all()
    expected = (rows.double() - rows.double().mean(0)) / (rows.double().var(0, correction=0) + norm.eps).sqrt()
    torch.testing.assert_close(norm(rows)[:, [0, 2]].double(), expected[:, [0, 2]], rtol=1e-3, atol=1e-3)
    assert (norm(rows)[:, 1] == 0).all(), "a constant"


def test_without_any_rows_it_changes_nothing() -> None:
    x = torch.randn(5, 3)
    torch.testing.assert_close(RunningNorm(3)(x), x)


class Walk(World):
    """Observations are what it remembers of them all."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    length, truncates = 10, True

    def look(self) -> np.ndarray:
        self.shown.append(self.np_random.normal([50.0, -3.0], [4.0, 0.1]).astype(np.float32))
        return self.shown[-1]


@pytest.mark.parametrize("overlap", one_of_each([False, True], True))
def test_every_observation_that_it_acts_on_counts_once(overlap: bool) -> None:
    env = Walk(shown=[])
    trained = model(env, overlap=overlap).learn(60)
    acted_on = [obs for t, obs in enumerate(env.shown) if t % 11 != 10][:60]  # not the last of an episode
    norm = trained.policy.norm
    assert norm.count == 60
    torch.testing.assert_close(norm.mean, torch.tensor(np.mean(acted_on, 0)), rtol=1e-5, atol=0)
    torch.testing.assert_close(norm.var, torch.tensor(np.var(acted_on, 0)), rtol=1e-3, atol=0)


def test_all_networks_read_by_the_same_statistics_and_files_keep_them(tmp_path: Any) -> None:
    trained = model().learn(40)
    trained.save(tmp_path / "model.zip")
    for policy in (trained.policy, SimBa.load(tmp_path / "model.zip").policy):
        readers = (policy.actor, policy.critic, policy.critic_target)
        assert all(network.features_extractor[1] is policy.norm for network in readers)
        assert policy.norm.count == 40
        torch.testing.assert_close(policy.norm.mean, trained.policy.norm.mean, rtol=0, atol=0)


def test_pictures_go_in_as_they_are() -> None:
    picture = spaces.Box(0, 255, (3, 36, 36), np.uint8)
    for space in (picture, spaces.Dict({"picture": picture, "speed": spaces.Box(-1, 1, (2,))})):
        policy = SimBaPolicy(space, Walk.action_space, actor=SimBaActor, critic=SimBaCritic, net_arch=[8])
        assert policy.norm is None
        policy.observe(space.sample())


def test_parts_of_a_dict_are_normalised_side_by_side() -> None:
    space = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Box(-1, 1, (3,))})
    policy = SimBaPolicy(space, Walk.action_space, actor=SimBaActor, critic=SimBaCritic, net_arch=[8])
    policy.observe({"a": np.full((4, 2), 2.0, np.float32), "b": np.full((4, 3), 7.0, np.float32)})
    torch.testing.assert_close(policy.norm.mean, torch.tensor([2.0, 2.0, 7.0, 7.0, 7.0]))


# -- networks ----------------------------------------------------------------------------------------------------------


def layer_norm(x: Tensor) -> Tensor:
    return (x - x.mean(1, keepdim=True)) / (x.var(1, correction=0, keepdim=True) + 1e-5).sqrt()


def test_a_network_is_its_equations() -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(*residual_layers(5, [8, 8])).double()
    inputs = torch.randn(7, 5).double()
    x = inputs @ layers[0].weight.T + layers[0].bias
    for block in (layers[1], layers[2]):
        hidden = (layer_norm(x) @ block.expand.weight.T + block.expand.bias).clamp(min=0)
        assert hidden.shape == (7, 32)
        x = x + hidden @ block.contract.weight.T + block.contract.bias
    torch.testing.assert_close(layers(inputs), layer_norm(x))


def test_a_block_without_weights_lets_everything_through() -> None:
    block, x = ResidualBlock(6), torch.randn(4, 6)
    for parameter in block.contract.parameters():
        nn.init.zeros_(parameter)
    assert torch.equal(block(x), x)


@pytest.mark.parametrize("arch", [[], [8, 16]])
def test_blocks_of_different_widths_are_refused(arch: list[int]) -> None:
    with pytest.raises(PolicyError, match="same width"):
        residual_layers(5, arch)


# -- the recipe --------------------------------------------------------------------------------------------------------


def test_its_settings_are_the_papers() -> None:
    made = SimBa("MlpPolicy", "Pendulum-v1", device="cpu")
    assert (made.learning_rate, made.gradient_steps, made.batch_size, made.tau) == (1e-4, 2, 256, 0.005)
    assert made.learner.target_entropy == -0.5
    assert made.learner.temperature().item() == pytest.approx(0.01)
    for optimizer in (made.learner.optimizers["actor"], made.learner.optimizers["critic"]):
        assert isinstance(optimizer, torch.optim.AdamW)
        assert optimizer.param_groups[0]["weight_decay"] == 0.01
    assert made.policy.actor.latent_pi[1].expand.weight.shape == (512, 128)
    assert made.policy.critic.qf0[1].expand.weight.shape == (2048, 512)
    assert SimBa("MlpPolicy", "Pendulum-v1", device="cpu", target_entropy=-3.0).learner.target_entropy == -3.0


@pytest.mark.parametrize("n_critics", [1, 3])
def test_the_smallest_of_the_critics_counts(n_critics: int) -> None:
    made = model(n_critics=n_critics)
    assert len(made.policy.critic.q_networks) == n_critics
    made.learn(30)
    with pytest.raises(ValueError, match="n_critics"):
        model(n_critics=2, policy_kwargs={"net_arch": ARCH, "n_critics": 4})


def test_two_updates_follow_each_step() -> None:
    env = make_vec_env("Pendulum-v1", 1, seed=0)
    assert model(env, learning_starts=20).learn(50)._n_updates == 2 * 30


def test_its_losses_are_those_of_sac() -> None:
    """With the same weights and draws, one step of SimBa's learner is one of SAC's."""
    ours = model(weight_decay=0.0, ent_coef=0.2, target_entropy=-1.0, learning_rate=1e-3)
    theirs = SAC(
        SimBaPolicy, "Pendulum-v1", device="cpu", seed=0, compile=False, ent_coef=0.2, learning_rate=1e-3,
        policy_kwargs={"net_arch": ARCH, "actor": SimBaActor, "critic": SimBaCritic},
    )  # fmt: skip
    theirs.policy.load_state_dict(ours.policy.state_dict())
    rows = (torch.randn(16, 3), torch.rand(16, 1), torch.randn(16), torch.randn(16, 3), torch.full((16,), 0.9))
    batch = Transition(*rows, torch.ones(16))
    for _ in range(3):
        metrics = []
        for learner in (ours.learner, theirs.learner):
            torch.manual_seed(5)
            metrics.append(learner.update(batch).metrics)
        for name in ("critic_loss", "actor_loss"):
            torch.testing.assert_close(metrics[0][name], metrics[1][name])
