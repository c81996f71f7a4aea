"""Acting by numpy: the actions and the random draws of torch, never with weights that are not the policy's."""

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn
from torch.nn.utils import parametrizations

import polyak
from polyak.algorithms.droq import DropoutCritic
from polyak.compat.sb3_face import policies as sb3
from polyak.compat.sb3_face.distributions import DiagGaussianDistribution, StateDependentNoiseDistribution
from polyak.compat.sb3_face.maskable.policies import MaskableActorCriticPolicy
from polyak.nn import (
    ActorCriticPolicy,
    BaseFeaturesExtractor,
    BatchRenorm1d,
    CategoricalPolicy,
    ContinuousCritic,
    ContinuousPolicy,
    CrossQActor,
    CrossQCritic,
    Distribution,
    Gaussian,
    GaussianFamily,
    PairedPolicy,
    QuantileCritic,
    ValuePolicy,
)
from polyak.nn.backends.eager import Eager
from polyak.nn.backends.numpy import Numpy
from polyak.nn.backends.operations import TORCH_PRODUCT
from polyak.nn.policies.base import Policy
from polyak.nn.policies.direct import DirectPolicy
from polyak.nn.policies.simba import SimBaActor, SimBaCritic, SimBaPolicy
from polyak.nn.policies.value import CategoricalQNetwork, ImplicitQuantileNetwork, QuantileNetwork
from tests.nn.policy_cases import ACTIONS, OBSERVATIONS, VECTOR
from tests.pairs import one_of_each
from tests.tolerance import FUNCTION, LIKELY, assert_near, bound, drift, rounding, through
from tests.worlds import World

BOX = spaces.Box(-2.0, 3.0, (3,), np.float32)
GRID = spaces.Box(-3.0, 1.0, (2, 3), np.float32)
MATRIX = spaces.Box(-1.0, 1.0, (2, 3), np.float64)
PARTS = spaces.Dict(
    choice=spaces.Discrete(5, start=2),
    hand=spaces.Tuple((BOX, spaces.MultiBinary(3), GRID)),
    several=spaces.MultiDiscrete([[3, 2], [17, 2]]),
)
LARGEST_DRAW = 6.0  # of a standard normal variable: exceeded twice in a thousand million


def rate(progress: float) -> float:
    return 1e-3


def renormalised(obs: spaces.Space, actions: spaces.Box, **kwargs: Any) -> ContinuousPolicy:
    """CrossQ's policy as it acts after some updates."""
    kwargs |= {"actor": CrossQActor, "critic": CrossQCritic}
    policy = ContinuousPolicy(obs, actions, batch_norm_momentum=0.5, **kwargs)
    for _ in range(3):  # in training
        policy.actor(3 * torch.randn(200, *obs.shape) + 1)
    policy.set_training_mode(False)
    return policy


def simba(obs: spaces.Space, actions: spaces.Box, **kwargs: Any) -> SimBaPolicy:
    """SimBa's policy after some observations."""
    policy = SimBaPolicy(obs, actions, actor=SimBaActor, critic=SimBaCritic, **{"net_arch": [16, 16], **kwargs})
    policy.observe(3 * np.random.default_rng(0).standard_normal((20, *obs.shape)).astype(np.float32) + 1)
    return policy


def made(cls: Any, *args: Any, **options: Any) -> Any:
    """What builds a policy for observations."""
    return lambda obs, **more: cls(obs, *args, **options, **more)


HEADS: dict[str, Any] = {
    "categorical": made(ActorCriticPolicy, spaces.Discrete(4)),
    "categorical_wide": made(ActorCriticPolicy, spaces.Discrete(40, start=3)),
    "multi_categorical": made(ActorCriticPolicy, spaces.MultiDiscrete([3, 2, 17])),
    "product": made(ActorCriticPolicy, PARTS),
    "product_discrete": made(ActorCriticPolicy, spaces.Dict(a=spaces.Discrete(3)), sparse=True),
    "multi_categorical_table": made(ActorCriticPolicy, spaces.MultiDiscrete([[3, 2], [2, 4]])),
    "sparse": made(ActorCriticPolicy, spaces.Discrete(4), sparse=True),
    "multi_sparse": made(ActorCriticPolicy, spaces.MultiDiscrete([3, 2, 17]), sparse=True),
    "bernoulli": made(ActorCriticPolicy, spaces.MultiBinary(5)),
    "gaussian": made(ActorCriticPolicy, BOX),
    "gaussian_grid": made(ActorCriticPolicy, GRID),
    "gaussian_own_features": made(ActorCriticPolicy, BOX, share_features_extractor=False),
    "squashed": made(ContinuousPolicy, BOX),
    "squashed_quantiles": made(ContinuousPolicy, BOX, critic=QuantileCritic, n_quantiles=5),
    "squashed_softplus": made(ContinuousPolicy, BOX, softplus_std=True),
    "squashed_grid": made(ContinuousPolicy, GRID),
    "squashed_dropout_critics": made(ContinuousPolicy, BOX, critic=DropoutCritic, n_critics=3),
    "state_dependent": made(ActorCriticPolicy, BOX, use_sde=True),
    "state_dependent_squashed": made(
        ActorCriticPolicy, GRID, use_sde=True, squash_output=True, use_expln=True, full_std=False
    ),
    "state_dependent_sac": made(ContinuousPolicy, GRID, use_sde=True, log_std_init=-1),
    "state_dependent_sac_free": made(ContinuousPolicy, BOX, use_sde=True, clip_mean=0.0),
    "renormalised": made(renormalised, BOX),
    "renormalised_state_dependent": made(renormalised, GRID, use_sde=True, log_std_init=-1),
    "simba": made(simba, BOX),
    "simba_state_dependent": made(simba, GRID, use_sde=True, log_std_init=-1),
    "deterministic": made(ContinuousPolicy, BOX, actor="deterministic"),
    "deterministic_grid": made(ContinuousPolicy, GRID, actor="deterministic"),
    "paired": made(PairedPolicy, BOX),
    "paired_grid": made(PairedPolicy, GRID, n_pairs=3),
    "categorical_sac": made(CategoricalPolicy, spaces.Discrete(4, start=2)),
    "direct": made(DirectPolicy, GRID),
    "direct_choice": made(DirectPolicy, spaces.Discrete(4)),
    "greedy": made(ValuePolicy, spaces.Discrete(4)),
    "dueling": made(ValuePolicy, spaces.Discrete(4), dueling=True),
    "dueling_max": made(ValuePolicy, spaces.Discrete(4), dueling="max"),
    "noisy": made(ValuePolicy, spaces.Discrete(4), sigma0=0.5),
    "noisy_dueling": made(ValuePolicy, spaces.Discrete(4), sigma0=0.5, dueling=True),
    "layer_norm": made(ValuePolicy, spaces.Discrete(4), layer_norm=True),
    "layer_norm_noisy_dueling": made(ValuePolicy, spaces.Discrete(4), layer_norm=True, sigma0=0.5, dueling=True),
    "quantiles": made(ValuePolicy, spaces.Discrete(4), network=QuantileNetwork),
    "quantiles_dueling": made(ValuePolicy, spaces.Discrete(4), network=QuantileNetwork, n_quantiles=7, dueling=True),
    "atoms": made(ValuePolicy, spaces.Discrete(4), network=CategoricalQNetwork),
    "rainbow": made(ValuePolicy, spaces.Discrete(4), network=CategoricalQNetwork, n_atoms=11, dueling=True, sigma0=0.3),
    "implicit": made(ValuePolicy, spaces.Discrete(4), network=ImplicitQuantileNetwork),
    "implicit_noisy": made(
        ValuePolicy, spaces.Discrete(4), network=ImplicitQuantileNetwork, dueling=True, sigma0=0.5, n_samples=5
    ),
    "sb3_actor_critic": made(sb3.ActorCriticPolicy, BOX, rate),
    "contrib_maskable": made(MaskableActorCriticPolicy, spaces.MultiDiscrete([3, 2, 4]), rate),
    "contrib_maskable_coins": made(MaskableActorCriticPolicy, spaces.MultiBinary(4), rate),
    "sb3_dqn": made(sb3.DQNPolicy, spaces.Discrete(4), rate),
    "sb3_state_dependent": made(sb3.ActorCriticPolicy, BOX, rate, use_sde=True),
    "sb3_state_dependent_sac": made(sb3.SACPolicy, BOX, rate, use_sde=True),
    "sb3_sac": made(sb3.SACPolicy, BOX, rate),
    "sb3_tqc": made(sb3.TQCPolicy, BOX, rate),
    "contrib_crossq": lambda obs, **kw: sb3.CrossQPolicy(obs, BOX, rate, **kw).eval(),
    "sb3_td3": made(sb3.TD3Policy, BOX, rate),
}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def build(head: str, obs: spaces.Space = VECTOR, **kwargs: Any) -> Any:
    """A policy whose actions depend much on the observations."""
    policy = HEADS[head](obs, **kwargs)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return policy


def observations(batch: int, space: spaces.Space = VECTOR, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((batch, *space.shape)).astype(space.dtype)


class Acting(Numpy):
    """Actions alone."""

    def __call__(self, obs: Any, deterministic: bool = False) -> np.ndarray:  # type: ignore[override]
        return super().__call__(obs, deterministic)[0]


def acting_on(policy: Any) -> Acting:
    """Actions of the policy, and the certainty that they come from numpy."""
    acting = Acting(policy)
    acting.prepare(np.stack([policy.observation_space.sample()]))
    assert acting.reason is None
    return acting


def way(policy: Any) -> tuple[list[nn.Module], dict[str, Any]]:
    """Layers that act in a row, and what the distribution of the actions is made of besides their outputs."""
    if isinstance(policy, PairedPolicy):
        pairs = [(pair.actor.features_extractor, pair.actor.mu) for pair in policy.pairs]
        return [], {"pairs": pairs}
    if isinstance(policy, DirectPolicy):
        return [policy.features_extractor, policy.action_net], {}
    if isinstance(policy, ActorCriticPolicy):
        layers = [policy.pi_features_extractor, policy.mlp_extractor.policy_net]
        found = {"log_std": policy.log_std} if hasattr(policy, "log_std") else {}
        if not hasattr(policy, "exploration_noise"):
            return [*layers, policy.action_net], found
        return layers, found | {"mean": policy.action_net, **deviations(policy)}
    actor: Any = policy.actor  # type: ignore[attr-defined]
    if not hasattr(actor, "log_std"):
        return [actor.features_extractor, actor.mu], {}
    found = {"mean": actor.mu, "log_std": actor.log_std, "bounds": (-20.0, 2.0), **deviations(actor)}
    return [actor.features_extractor, actor.latent_pi], found


def deviations(owner: Any) -> dict[str, Any]:
    """What gSDE is made of, where there is one."""
    if not hasattr(owner, "exploration_noise"):
        return {}
    return {"draws": owner.exploration_noise, "family": owner.action_family}


def by_torch(policy: Any, obs: np.ndarray, deterministic: bool = False) -> np.ndarray:
    with torch.no_grad():
        return policy.act(policy.obs_to_tensor(obs)[0], deterministic=deterministic).numpy()


def tolerance(policy: Any, obs: np.ndarray) -> np.ndarray | float:
    """How far apart torch and the arrays may leave each action [B, A]: error analysis of layers and head."""
    composed = isinstance(policy.action_space, spaces.Dict)
    if not (composed or isinstance(policy.action_space, spaces.Box)):
        return 0.0  # one choice of several is meant
    layers, head = way(policy)
    inputs = policy.preprocess(policy.obs_to_tensor(obs)[0]).flatten(1)
    values, error = through(layers, inputs)
    if "mean" in head:  # the layers end at latents
        means, off = through([head["mean"]], values, error)
        if "draws" in head:  # noise is one more product, with deviations times draws
            matrices = head["draws"].of(len(values)).double() * head["family"].sigma(head["log_std"].detach())
            weights = matrices.transpose(-1, -2).expand(len(values), means.shape[1], -1)
            for b, weight in enumerate(weights):
                noise = values[b] @ weight.T
                off[b] += (error[b] ** 2 @ weight.T**2).sqrt() + rounding(values[b], weight, 0 * noise, noise)
            off *= 2
        else:
            log_std, its_error = through([head["log_std"]], values, error)
            off += LARGEST_DRAW * log_std.clamp(*head["bounds"]).exp() * (its_error + bound(FUNCTION))
        values, error = means, off + bound(FUNCTION)
    elif "pairs" in head:  # whichever actor is chosen
        error = torch.stack([through(actor, inputs)[1] for actor in head["pairs"]]).amax(0)
    elif composed:  # choices are equal, and the means among the outputs are as far apart as any output
        largest = policy.log_std.detach().exp().amax() if hasattr(policy, "log_std") else 0.0
        error = error.amax(1, keepdim=True).expand(-1, *policy.codec.shape) + LARGEST_DRAW * largest * bound(FUNCTION)
    elif "log_std" in head:
        error = error + LARGEST_DRAW * head["log_std"].detach().exp() * bound(FUNCTION)
    return (LIKELY * error).numpy()


def assert_same(acting: Acting, obs: np.ndarray, deterministic: bool = False, seed: int = 0) -> None:
    """The same actions as by torch, and the same state of the generator afterwards."""
    torch.default_generator.manual_seed(seed)  # without the devices', which take milliseconds
    expected = by_torch(acting.policy, obs, deterministic)
    state = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    actions = acting(obs, deterministic)
    assert torch.equal(torch.get_rng_state(), state)
    assert actions.shape == expected.shape
    assert actions.dtype == expected.dtype
    if isinstance(acting.policy, ValuePolicy):
        assert_best(acting.policy, obs, actions, deterministic, seed)
    else:
        assert_near(actions, expected, tolerance(acting.policy, obs))


def assert_best(policy: ValuePolicy, obs: np.ndarray, actions: np.ndarray, deterministic: bool, seed: int) -> None:
    """By torch's values no other action is better, but for rounding."""
    torch.default_generator.manual_seed(seed)
    with torch.no_grad(), policy.drawing(not deterministic):
        q = policy.q_net(policy.obs_to_tensor(obs)[0]).numpy()
    widths = 2 * 64 + math.prod(policy.observation_space.shape) + 51  # of two layers, and a mean over atoms
    size = max(10.0, np.abs(q).max())  # 10 is the largest atom
    assert (q.max(1) - q[np.arange(len(q)), actions] <= 2 * bound(widths, size)).all()
    assert (q.max(1) - q.min(1) > 4 * bound(widths, size)).any(), "any action would do"


# --- agreement ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", one_of_each([1, 7, 16], 16))
@pytest.mark.parametrize("head", HEADS)
def test_actions_and_draws_are_those_of_torch(head: str, batch: int) -> None:
    acting = acting_on(build(head))
    for seed in range(2 + 24 // batch):
        for deterministic in (False, True):
            earlier = acting(observations(batch, seed=seed + 1), deterministic)
            kept = earlier.copy()
            assert_same(acting, observations(batch, seed=seed), deterministic, seed)
            np.testing.assert_array_equal(earlier, kept, "actions are new arrays")


@pytest.mark.parametrize("head", ["categorical", "multi_categorical", "bernoulli", "gaussian", "squashed", "greedy"])
def test_a_long_run_of_draws_is_that_of_torch(head: str) -> None:
    acting = acting_on(build(head))
    obs = [observations(1, seed=seed) for seed in range(300)]
    torch.manual_seed(3)
    expected = [by_torch(acting.policy, o) for o in obs]
    torch.manual_seed(3)
    for one, other in zip(obs, expected, strict=True):
        actions = acting(one)
        assert_near(actions, other, tolerance(acting.policy, one))


@pytest.mark.parametrize(
    "kind",
    (nn.CELU, nn.ELU, nn.GELU, nn.Hardswish, nn.Hardtanh, nn.Identity, nn.LeakyReLU, nn.Mish, nn.ReLU)
    + (nn.ReLU6, nn.SELU, nn.SiLU, nn.Sigmoid, nn.Softplus, nn.Softsign, nn.Tanh),
)
def test_every_activation(kind: type[nn.Module]) -> None:
    for head in ("gaussian", "squashed", "greedy"):
        assert_same(acting_on(build(head, activation_fn=kind)), 3 * observations(4))


@pytest.mark.parametrize("head", ["gaussian", "squashed", "deterministic", "paired", "greedy"])
def test_no_hidden_layers(head: str) -> None:
    assert_same(acting_on(build(head, net_arch=[])), observations(4))


@pytest.mark.parametrize("batch", [1, 3, 16])
def test_wide_layers_take_torchs_matrix_product(batch: int) -> None:
    assert 16 * 256 * 256 > TORCH_PRODUCT > 3 * 256 * 256
    for head in ("squashed", "deterministic"):
        assert_same(acting_on(build(head, net_arch=[256, 256])), observations(batch))


@pytest.mark.parametrize("space", [MATRIX, spaces.Box(0, 9, (4,), np.int64), OBSERVATIONS["multi_binary"]], ids=str)
def test_other_observations_that_are_numbers(space: spaces.Space) -> None:
    acting = acting_on(build("gaussian", space))
    for batch in (1, 5):
        obs = 2 * np.random.default_rng(batch).standard_normal((batch, *space.shape))
        obs = obs > 0 if isinstance(space, spaces.MultiBinary) else obs
        assert_same(acting, obs.astype(space.dtype))


@pytest.mark.parametrize("head", ["gaussian", "greedy", "squashed"])
@pytest.mark.parametrize(
    "space",
    [spaces.Discrete(4), spaces.Discrete(5, start=-2), spaces.MultiDiscrete([3, 4], start=[2, -1])]
    + [spaces.MultiDiscrete([[3, 4], [2, 2]], dtype=np.uint8)],
    ids=str,
)
def test_discrete_observations_come_one_hot(space: spaces.Space, head: str) -> None:
    space.seed(0)
    policy = build(head, space)
    acting = acting_on(policy)
    for batch in (1, 6, 2):
        obs = np.stack([space.sample() for _ in range(batch)])
        assert_same(acting, obs)
        assert_same(acting, obs.astype(np.float32))
        outside = obs + 10
        with pytest.raises((RuntimeError, ValueError)):
            acting(outside)
    with pytest.raises((RuntimeError, ValueError)):
        by_torch(policy, outside)


def test_layers_without_bias() -> None:
    policy = build("greedy")
    policy.q_net.q_net = nn.Sequential(nn.Linear(5, 300, bias=False), nn.ReLU(), nn.Linear(300, 4, bias=False))
    for batch in (1, 4, 300):
        assert_same(acting_on(policy), observations(batch))


def test_the_observation_is_only_read() -> None:
    acting = acting_on(build("greedy", net_arch=[]))
    obs = observations(3)
    obs.setflags(write=False)
    acting(obs)


@pytest.mark.parametrize("log_std", [-100.0, 100.0])
def test_the_log_standard_deviation_is_bounded(log_std: float) -> None:
    policy = build("squashed")
    for layer in (policy.actor.mu, policy.actor.log_std):
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
    nn.init.constant_(policy.actor.log_std.bias, log_std)
    torch.manual_seed(0)
    expected = by_torch(policy, observations(2))
    torch.manual_seed(0)
    std = math.exp(min(max(log_std, -20.0), 2.0))
    assert_near(acting_on(policy)(observations(2)), expected, bound(LIKELY, LARGEST_DRAW * std))
    assert np.all(expected != 0)


def test_an_exponential_draw_of_zero_leaves_the_choice_to_the_logits(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    acting, obs = acting_on(build("categorical")), observations(5)
    monkeypatch.setattr(torch.Tensor, "exponential_", lambda tensor, generator=None: tensor.zero_())
    np.testing.assert_array_equal(acting(obs), acting(obs, deterministic=True))
    assert not recwarn.list


# --- weights that move ----------------------------------------------------------------------------------------------


def _step(policy: Any) -> None:
    for p in policy.parameters():
        p.grad = torch.ones_like(p)
    torch.optim.Adam(policy.parameters(), 0.1).step()


def _load(policy: Any) -> None:
    policy.load_state_dict({name: value + 0.3 for name, value in policy.state_dict().items()})


def _data(policy: Any) -> None:
    for p in policy.parameters():
        p.data = p.data + 0.3


def _transposed(policy: Any) -> None:
    layer = policy.mlp_extractor.policy_net[2]
    layer.weight.data = layer.weight.data.t()


def _parameter(policy: Any) -> None:
    policy.action_net.weight = nn.Parameter(policy.action_net.weight.detach() + 0.3)


def _wider_parameter(policy: Any) -> None:
    net = policy.mlp_extractor.policy_net
    net[0].weight, net[0].bias = nn.Parameter(torch.randn(9, 5)), nn.Parameter(torch.randn(9))
    net[2].weight = nn.Parameter(torch.randn(64, 9))


def _no_bias(policy: Any) -> None:
    policy.action_net.bias = None


def _scale(policy: Any) -> None:
    policy.log_std = nn.Parameter(policy.log_std.detach() + 0.5)


def _module(policy: Any) -> None:
    policy.action_net = nn.Linear(64, 3)


def _deep_module(policy: Any) -> None:
    policy.mlp_extractor.policy_net[2] = nn.Linear(64, 64)


def _activation(policy: Any) -> None:
    policy.mlp_extractor.policy_net[1] = nn.ReLU()


def _whole(policy: Any) -> None:
    policy.mlp_extractor = copy.deepcopy(policy.mlp_extractor)
    with torch.no_grad():
        policy.mlp_extractor.policy_net[0].weight.add_(0.3)


def _twice(policy: Any) -> None:
    policy.to(torch.float64).to(torch.float32)
    with torch.no_grad():
        policy.action_net.bias.add_(1.0)


CHANGES = (
    *(_step, _load, _data, _transposed, _parameter, _wider_parameter, _no_bias, _scale, _module, _deep_module),
    *(_activation, _whole, _twice),
)


@pytest.mark.parametrize("refresh", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_changed_weights_are_seen_at_once(change: Any, refresh: bool) -> None:
    if change is _transposed and not refresh:
        pytest.skip("the same memory read the other way round: looked for once a rollout")
    policy = build("gaussian")
    acting = acting_on(policy)
    before = acting(observations(3), deterministic=True)
    change(policy)
    if refresh:
        acting.begin()
    assert_same(acting, observations(3))
    after = acting(observations(3), deterministic=True)
    assert change is _scale or not np.allclose(before, after)


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("head", [name for name in HEADS if name.startswith(("state", "sb3_state"))])
def test_new_exploration_matrices_are_seen_at_once(head: str, batch: int) -> None:
    policy = build(head)
    acting = acting_on(policy)
    seen = []
    for draw, matrices in enumerate((1, 4, 4, 1, 3)):
        torch.manual_seed(draw)
        policy.reset_noise(matrices)
        assert_same(acting, observations(batch))
        seen.append(acting(observations(batch)))
    assert all(not np.allclose(a, b) for i, a in enumerate(seen) for b in seen[:i])
    scale = getattr(policy, "actor", policy).log_std
    with torch.no_grad():
        scale.add_(0.5)
    assert_same(acting, observations(batch))
    assert not np.allclose(acting(observations(batch)), seen[-1])


@pytest.mark.parametrize("head", ["squashed", "state_dependent_sac"])
def test_a_head_of_several_layers_leaves_the_latents_alone(head: str) -> None:
    policy = build(head)
    width = math.prod(policy.action_space.shape)
    policy.actor.mu = nn.Sequential(nn.Tanh(), nn.Linear(256, 16), nn.ELU(), nn.Sequential(nn.Linear(16, width)))
    acting = acting_on(policy)
    for seed in range(5):
        assert_same(acting, observations(3, seed=seed))
        assert_same(acting, observations(3, seed=seed), deterministic=True)


def test_another_q_network() -> None:
    policy = build("greedy")
    acting = acting_on(policy)
    for seed in range(5):
        policy.q_net = build("greedy").q_net
        assert_same(acting, observations(9, seed=seed))


def test_another_actor_and_other_layers_of_it() -> None:
    policy = build("squashed")
    acting = acting_on(policy)
    for change in ("actor", "mu", "log_std", "latent_pi"):
        other = build("squashed").actor
        if change == "actor":
            policy.actor = other
        else:
            setattr(policy.actor, change, getattr(other, change))
        assert_same(acting, observations(3))


def test_another_critic_may_prefer_another_proposal() -> None:
    policy = build("paired")
    acting, obs = acting_on(policy), observations(1)
    for chosen in (0, 1, 0):
        for k, pair in enumerate(policy.pairs):
            pair.critic.qf0[-1] = nn.Linear(300, 1)
            nn.init.constant_(pair.critic.qf0[-1].bias, 100.0 * (k == chosen))
        assert_same(acting, obs)
        proposed = policy.pairs[chosen].actor(torch.from_numpy(obs)).detach().numpy()
        assert_near(acting(obs), proposed, tolerance(policy, obs))


def test_a_parameter_of_one_entry_that_is_replaced_by_an_equal_one() -> None:
    policy = ContinuousPolicy(spaces.Box(-1, 1, (1,)), spaces.Box(-1, 1, (1,)), actor="deterministic", net_arch=[])
    acting, obs = acting_on(policy), np.ones((1, 1), np.float32)
    layer = policy.actor.mu[0]
    layer.bias = nn.Parameter(layer.bias.detach().clone())
    assert_same(acting, obs)
    with torch.no_grad():
        layer.bias.add_(0.5)
    assert_same(acting, obs)


def test_settings_of_a_layer_are_looked_at_before_each_rollout() -> None:
    policy = build("gaussian", activation_fn=nn.LeakyReLU)
    acting = acting_on(policy)
    policy.mlp_extractor.policy_net[1].negative_slope = 0.7
    acting.begin()
    assert_same(acting, observations(2))


def test_another_family_is_found_before_each_rollout() -> None:
    class Shifted(GaussianFamily):
        def __call__(self, mean: torch.Tensor, log_std: torch.Tensor) -> Distribution:
            return Gaussian(mean + 1, log_std.exp().expand_as(mean), log_std.expand_as(mean))

    policy = build("gaussian")
    acting = acting_on(policy)
    policy.action_family = Shifted(3)
    acting.begin()
    assert_same(acting, observations(2))
    assert acting.reason is not None
    policy.action_family = GaussianFamily(3, squash=True)
    acting.begin()
    assert_same(acting, observations(2))
    assert acting.reason is None


class Shifted(DiagGaussianDistribution):
    def sample(self) -> torch.Tensor:
        return super().sample() + 1


@pytest.mark.parametrize(
    ("head", "dist"),
    [
        ("sb3_actor_critic", Shifted(3)),
        ("sb3_state_dependent", StateDependentNoiseDistribution(3, use_expln=True)),
        ("sb3_sac", Shifted(3)),
        ("sb3_state_dependent_sac", StateDependentNoiseDistribution(3, squash_output=True, learn_features=True)),
    ],
)
def test_another_distribution_of_sb3_is_found_before_each_rollout(head: str, dist: Any) -> None:
    policy = build(head)
    acting = acting_on(policy)
    getattr(policy, "actor", policy).action_dist = dist
    if hasattr(dist, "sample_weights"):
        policy.reset_noise(2)
    acting.begin()
    assert_same(acting, observations(2))
    assert (acting.reason is None) == (type(dist) is StateDependentNoiseDistribution)


@pytest.mark.parametrize("head", ["gaussian", "squashed", "greedy"])
def test_copies_look_at_their_own_weights(head: str) -> None:
    acting = acting_on(build(head))
    acting(observations(3))
    for other in (copy.deepcopy(acting), pickle.loads(pickle.dumps(acting))):
        assert other.policy is not acting.policy
        _data(other.policy)
        other.begin()
        assert_same(other, observations(3))
        assert_same(acting, observations(3))


# --- what only torch can do -----------------------------------------------------------------------------------------


class OwnFeatures(BaseFeaturesExtractor):
    def __init__(self, space: spaces.Space) -> None:
        super().__init__(space, 5)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return 2 * observations


class OwnLinear(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return -super().forward(input)


class OwnAct(ActorCriticPolicy):
    def act(self, obs: Any, deterministic: bool = False) -> torch.Tensor:
        return super().act(obs, deterministic) + 1


class OwnForward(ActorCriticPolicy):
    def forward(self, obs: Any, deterministic: bool = False) -> Any:
        actions, values, log_prob = super().forward(obs, deterministic)
        return actions + 1, values, log_prob


class OwnDistribution(ActorCriticPolicy):
    def get_distribution(self, obs: Any) -> Any:
        return super().get_distribution(2 * obs)


class OwnLatent(ActorCriticPolicy):
    def _get_action_dist_from_latent(self, latent_pi: torch.Tensor) -> Any:
        return super()._get_action_dist_from_latent(2 * latent_pi)


class OwnPreprocessing(ActorCriticPolicy):
    def preprocess(self, obs: Any) -> Any:
        return super().preprocess(obs) / 2

    def extract_features(self, obs: Any, features_extractor: Any = None) -> Any:
        return super().extract_features(self.preprocess(obs), features_extractor)


class OwnExtractor(ActorCriticPolicy):
    class Extractor(nn.Module):
        latent_dim_pi = latent_dim_vf = 5

        def forward(self, features: torch.Tensor) -> Any:
            return features, features

        def forward_actor(self, features: torch.Tensor) -> torch.Tensor:
            return features.flip(1)

        def forward_critic(self, features: torch.Tensor) -> torch.Tensor:
            return features

    def _build_mlp_extractor(self) -> None:
        self.mlp_extractor = self.Extractor()


class OwnPredict(sb3.DQNPolicy):
    def _predict(self, observation: Any, deterministic: bool = True) -> torch.Tensor:
        return 3 - super()._predict(observation)


class OwnTD3Predict(sb3.TD3Policy):
    def _predict(self, observation: Any, deterministic: bool = False) -> torch.Tensor:
        return -super()._predict(observation)


class OwnActor(sb3.SACActor):
    def get_action_dist_params(self, obs: Any) -> Any:
        mean, log_std, more = super().get_action_dist_params(obs)
        return mean + 1, log_std, more


class OwnSAC(sb3.SACPolicy):
    actor_type = OwnActor


class OwnCritic(PairedPolicy):
    class Critic(ContinuousCritic):
        def q1_forward(self, obs: Any, actions: torch.Tensor) -> torch.Tensor:
            return -super().q1_forward(obs, actions)

    def make_critic(self) -> ContinuousCritic:
        return self.Critic(net_arch=[8], n_critics=1, share_features_extractor=False, **self.network_arguments())


def _changed(policy: Any, change: Any) -> Any:
    change(policy)
    return policy


def _hooked(policy: Any) -> None:
    policy.action_net.register_forward_hook(lambda module, inputs, output: output + 1)


def _pre_hooked(policy: Any) -> None:
    policy.mlp_extractor.policy_net.register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,))


def _parametrized(policy: Any) -> None:
    parametrizations.weight_norm(policy.action_net)


def _assigned_act(policy: Any) -> None:
    act = policy.act
    policy.act = lambda obs, deterministic=False: act(obs, deterministic) + 1


def _assigned_forward(policy: Any) -> None:
    layer = policy.action_net
    layer.forward = lambda x: nn.Linear.forward(layer, x) + 1


def _own_layer(policy: Any) -> None:
    policy.action_net = OwnLinear(64, 3)


def _dropout(policy: Any) -> None:
    policy.mlp_extractor.policy_net.append(nn.Dropout(0.5))
    policy.eval()


def _normalised(policy: Any) -> None:
    policy.mlp_extractor.policy_net.append(nn.LayerNorm(64))


LATER = (_hooked, _pre_hooked, _parametrized, _assigned_act, _assigned_forward, _own_layer, _dropout, _normalised)

OWN: dict[str, Any] = {
    "own features": lambda: build("gaussian", features_extractor_class=OwnFeatures),
    "own features of q": lambda: build("greedy", features_extractor_class=OwnFeatures),
    "own act": lambda: OwnAct(VECTOR, BOX),
    "own forward": lambda: OwnForward(VECTOR, BOX),
    "own distribution": lambda: OwnDistribution(VECTOR, BOX),
    "own latent": lambda: OwnLatent(VECTOR, BOX),
    "own preprocessing": lambda: OwnPreprocessing(VECTOR, BOX),
    "own extractor": lambda: OwnExtractor(VECTOR, BOX),
    "own predict": lambda: OwnPredict(VECTOR, spaces.Discrete(4), rate),
    "own predict of td3": lambda: OwnTD3Predict(VECTOR, BOX, rate),
    "own critic": lambda: OwnCritic(VECTOR, BOX),
    "own actor": lambda: OwnSAC(VECTOR, BOX, rate),
    **{
        change.__name__.strip("_"): (lambda change=change: _changed(build("gaussian"), change))
        for change in (_hooked, _pre_hooked, _assigned_act, _assigned_forward, _own_layer)
    },
}


ONLY_TORCH: dict[str, Any] = {
    "images": lambda: build("gaussian", OBSERVATIONS["image"]),
    "dict": lambda: build("greedy", OBSERVATIONS["dict"]),
    "double precision": lambda: build("gaussian").double(),
    "half precision": lambda: build("greedy").to(torch.bfloat16),
}


@pytest.mark.parametrize("name", OWN)
def test_code_that_is_not_ours_acts_by_numpy_too(name: str) -> None:
    acting, obs = acting_on(OWN[name]()), observations(2)
    for deterministic in (False, True):
        torch.manual_seed(0)
        expected = by_torch(acting.policy, obs, deterministic)
        torch.manual_seed(0)
        np.testing.assert_allclose(acting(obs, deterministic), expected, rtol=0, atol=bound(2 * 64 + 51, 10))


@pytest.mark.parametrize("name", ONLY_TORCH)
def test_what_is_quicker_by_torch(name: str) -> None:
    policy = ONLY_TORCH[name]()
    acting, space = Numpy(policy), policy.observation_space
    one = space.sample()
    acting.prepare({k: v[None] for k, v in one.items()} if isinstance(one, dict) else one[None])
    assert acting.reason


@pytest.mark.parametrize("change", [_parametrized, _dropout, _normalised])
def test_other_parts_of_torchs_act_by_numpy_too(change: Any) -> None:
    assert_same(acting_on(_changed(build("gaussian"), change)), observations(2))


@pytest.mark.parametrize("change", LATER)
def test_what_comes_between_later_is_seen_at_once(change: Any) -> None:
    policy = build("gaussian")
    acting = acting_on(policy)
    before = acting(observations(2), deterministic=True)
    change(policy)
    assert_same(acting, observations(2))
    after = acting(observations(2), deterministic=True)
    assert change in (_parametrized, _dropout) or not np.allclose(before, after)


def _passes_in_training(policy: Any) -> None:
    policy.set_training_mode(True)
    policy.actor(torch.randn(50, 5))
    policy.set_training_mode(False)


def _statistics(policy: Any) -> None:
    for layer in policy.actor.latent_pi:
        if isinstance(layer, BatchRenorm1d):
            layer.ra_mean.data = layer.ra_mean + 0.3
            layer.ra_var = layer.ra_var * 2


def test_observations_that_move_the_statistics_are_seen() -> None:
    acting = acting_on(build("simba"))
    before = acting(observations(2), deterministic=True)
    acting.policy.observe(5 + observations(100))
    assert_same(acting, observations(2))
    assert not np.allclose(before, acting(observations(2), deterministic=True))


@pytest.mark.parametrize("change", [_passes_in_training, _load, _statistics])
def test_running_statistics_that_move_are_seen(change: Any) -> None:
    acting = acting_on(build("renormalised"))
    before = acting(observations(2), deterministic=True)
    change(acting.policy)
    assert_same(acting, observations(2))
    assert not np.allclose(before, acting(observations(2), deterministic=True))


def test_in_training_batches_are_normalised_by_torch() -> None:
    policy = build("renormalised")
    acting = acting_on(policy)
    policy.set_training_mode(True)
    acting.begin()
    acting(observations(2))
    assert acting.reason is not None
    policy.set_training_mode(False)
    acting.begin()
    assert_same(acting, observations(2))
    assert acting.reason is None


def test_hooks_on_all_modules() -> None:
    acting = acting_on(build("gaussian"))
    handle = nn.modules.module.register_module_forward_hook(
        lambda module, inputs, output: output + 1 if isinstance(module, nn.Linear) else output
    )
    try:
        assert_same(acting, observations(2))
    finally:
        handle.remove()
    acting.begin()
    assert_same(acting, observations(2))
    assert acting.reason is None


def test_a_gpu_or_another_type_is_noticed() -> None:
    policy = build("gaussian")
    acting = acting_on(policy)
    policy.to("meta")
    acting.begin()
    acting.prepare(observations(1))
    assert acting.reason is not None


# --- observations that are refused or converted ---------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_an_observation_that_must_be_converted_and_is_not_finite_is_refused(bad: float) -> None:
    policy = build("categorical")
    obs = observations(3).astype(np.float64)
    obs[-1, 2] = bad
    with pytest.raises(ValueError, match="not finite") as expected:
        policy.obs_to_tensor(obs)
    with pytest.raises(ValueError, match="not finite") as raised:
        acting_on(policy)(obs)
    assert str(raised.value) == str(expected.value)


def test_an_observation_beyond_float32_is_refused_without_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    policy = build("gaussian", MATRIX)
    with pytest.raises(ValueError, match=r"12 entries beyond the range of float32.*first is 1e\+300 at.*Scale or clip"):
        acting_on(policy)(np.full((2, 2, 3), 1e300))
    assert not recwarn.list


def test_large_observations_are_accepted(recwarn: pytest.WarningsRecorder) -> None:
    acting = acting_on(build("gaussian"))
    assert_same(acting, np.full((2, 5), 1e30, np.float32), deterministic=True)
    assert not recwarn.list


@pytest.mark.parametrize("shape", [(2, 4), (4,), (), (2, 5, 1)])
def test_an_observation_of_another_shape_is_refused_by_the_policy(shape: tuple[int, ...]) -> None:
    acting = acting_on(build("gaussian"))
    acting(observations(2))
    with pytest.raises(ValueError, match="shape"):
        acting(np.zeros(shape, np.float32))


def test_one_observation_and_lists_are_converted_by_the_policy() -> None:
    acting = acting_on(build("gaussian"))
    obs = observations(2)
    assert_same(acting, obs[0])
    assert_same(acting, obs.tolist())  # type: ignore[arg-type]


# --- in the loops ---------------------------------------------------------------------------------------------------


class Counter(World):
    observation_space, action_space, length = VECTOR, ACTIONS["box"], 8

    def look(self) -> np.ndarray:
        return np.full(5, self.t / 9, np.float32)

    def act(self, action: Any) -> float:
        return float(action[0])


@pytest.mark.parametrize(
    "name", one_of_each(["PPO", "A2C", "SAC", "TD3", "CrossQ", "PPO gSDE", "SAC gSDE"], "PPO", "SAC gSDE")
)
def test_a_training_is_the_same_through_torch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, _, gsde = name.partition(" ")

    def train(backend: Any) -> dict[str, torch.Tensor]:
        with monkeypatch.context() as patch:
            patch.setattr(Policy, "backend", backend.__name__.lower())
            options = {"n_steps": 32} if name in ("PPO", "A2C") else {"learning_starts": 10}
            if name == "PPO":
                options["batch_size"] = 32
            if name == "CrossQ":  # behind a ReLU, normalisation leaves gradients that are nothing but rounding
                options["policy_kwargs"] = {"net_arch": [64, 64], "activation_fn": nn.Tanh}
            if gsde:
                options |= {"use_sde": True, "sde_sample_freq": 4}
            model = getattr(polyak, name)("MlpPolicy", Counter(), seed=1, device="cpu", **options)
            model.learn(64)
            assert type(model.runner.actor._decide) is backend
            assert getattr(model.runner.actor._decide, "reason", None) is None
            return model.policy.state_dict()

    one, other = train(Numpy), train(Eager)
    for key, value in one.items():
        # at most 44 updates, the learning rates are up to 1e-3, and the sums those of 256 rows and widths of 256
        torch.testing.assert_close(value, other[key], rtol=0, atol=drift(44, 1e-3, 3 * 256))
