"""Stable-Baselines3's distributions: objects that change in place, those of the library and those of a user."""

import copy
import pickle
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch import distributions as td

from polyak.compat.contrib import TRPO
from polyak.compat.sb3 import PPO, SAC
from polyak.compat.sb3_face import policies
from polyak.compat.sb3_face.distributions import (
    BernoulliDistribution,
    CategoricalDistribution,
    DiagGaussianDistribution,
    Distribution,
    MultiCategoricalDistribution,
    SquashedDiagGaussianDistribution,
    StateDependentNoiseDistribution,
    TanhBijector,
    kl_divergence,
    make_proba_distribution,
    sum_independent_dims,
)
from polyak.nn import PolicyError

F64 = torch.float64
TINY: dict[str, Any] = {"policy_kwargs": {"net_arch": [8]}, "device": "cpu", "seed": 0}

FAMILIES: dict[str, Any] = {
    "gaussian": lambda: DiagGaussianDistribution(2),
    "squashed": lambda: SquashedDiagGaussianDistribution(2),
    "sde": lambda: StateDependentNoiseDistribution(2),
    "sde_squashed": lambda: StateDependentNoiseDistribution(2, squash_output=True, learn_features=True),
    "categorical": lambda: CategoricalDistribution(5),
    "multi_categorical": lambda: MultiCategoricalDistribution([3, 2]),
    "bernoulli": lambda: BernoulliDistribution(5),
}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def parameters(name: str) -> list[Tensor]:
    """Arguments of ``proba_distribution`` for six states."""
    if "sde" in name:
        latent = torch.randn(6, 3, dtype=F64)
        return [torch.randn(6, 2, dtype=F64), (0.3 * torch.randn(3, 2, dtype=F64)).requires_grad_(), latent]
    if name in ("gaussian", "squashed"):
        return [torch.randn(6, 2, dtype=F64), (0.3 * torch.randn(2, dtype=F64)).requires_grad_()]
    return [torch.randn(6, 5, dtype=F64).requires_grad_()]


def made(name: str) -> Any:
    dist, params = FAMILIES[name](), parameters(name)
    if "sde" in name:
        dist.sample_weights(params[1], 6)
    return dist.proba_distribution(*params)


# --- the library's own ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
def test_new_parameters_are_taken_in_place(name: str) -> None:
    dist = made(name)
    before = dist.log_prob(dist.mode())
    assert dist.proba_distribution(*parameters(name)) is dist
    assert not torch.equal(dist.log_prob(dist.mode()), before)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_object_of_torch_is_that_of_the_parameters(name: str) -> None:
    dist = made(name)
    reference = dist.distribution
    if "squashed" in name:
        reference = td.TransformedDistribution(reference, td.TanhTransform())
    actions = dist.sample().detach()
    if isinstance(reference, list):
        log_prob: Any = sum(one.log_prob(column) for one, column in zip(reference, actions.unbind(1), strict=True))
        entropy: Any = sum(one.entropy() for one in reference)
    else:
        log_prob = reference.log_prob(actions)
        log_prob = log_prob.sum(1) if log_prob.dim() > 1 else log_prob
        entropy = None if "squashed" in name else reference.entropy()
        entropy = entropy.sum(1) if entropy is not None and entropy.dim() > 1 else entropy
    # atanh magnifies the rounding of an action by at most 1 / (1 - a^2)
    atol = 1e-12 / (1 - actions.abs().max().item() ** 2) ** 2 if "squashed" in name else 1e-12
    torch.testing.assert_close(dist.log_prob(actions), log_prob, rtol=0, atol=atol)
    assert (dist.entropy() is None) == (entropy is None)
    if entropy is not None:
        torch.testing.assert_close(dist.entropy(), entropy)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_network_gives_the_parameters(name: str) -> None:
    dist, latent = FAMILIES[name](), torch.randn(6, 7)
    if "categorical" in name or name == "bernoulli":
        params = [dist.proba_distribution_net(latent_dim=7)(latent)]
    else:
        net, log_std = dist.proba_distribution_net(latent_dim=7, log_std_init=-1.0)
        params = [net(latent), log_std] + ([latent] if "sde" in name else [])
        assert isinstance(log_std, nn.Parameter)
        assert (log_std == -1).all()
    deterministic = dist.actions_from_params(*params, deterministic=True)
    assert torch.equal(deterministic, dist.actions_from_params(*params, True))
    assert torch.equal(deterministic, dist.get_actions(deterministic=True))
    assert torch.equal(deterministic, dist.mode())
    torch.manual_seed(1)
    sampled = dist.actions_from_params(*params)
    torch.manual_seed(1)
    actions, log_prob = dist.log_prob_from_params(*params)
    assert torch.equal(actions, sampled)
    torch.testing.assert_close(log_prob, dist.log_prob(actions), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", FAMILIES)
def test_divergence_is_torchs_and_the_sum_is_that_of_the_value(name: str) -> None:
    p, q = made(name), made(name)
    found = kl_divergence(p, q)
    assert found.shape == ((6,) if "categorical" in name else (6, 5) if name == "bernoulli" else (6, 2))
    torch.testing.assert_close(found.sum(1) if found.dim() > 1 else found, p.value.kl(q.value))
    torch.testing.assert_close(p.kl(q), p.value.kl(q.value), rtol=0, atol=0)


def test_without_parameters_there_is_an_error_that_says_so() -> None:
    dist = CategoricalDistribution(3)
    assert dist.distribution is None
    with pytest.raises(PolicyError, match="CategoricalDistribution has no parameters yet"):
        dist.sample()


@pytest.mark.parametrize("name", ["squashed", "sde_squashed"])
def test_actions_before_tanh_are_remembered(name: str) -> None:
    dist, params = made(name), parameters(name)
    actions, log_prob = dist.log_prob_from_params(*params)
    assert torch.equal(torch.tanh(dist.gaussian_actions), actions)
    assert torch.equal(log_prob, dist.log_prob(actions, dist.gaussian_actions))
    assert torch.equal(torch.tanh(dist.gaussian_actions), actions)
    dist.mode()
    assert torch.equal(dist.gaussian_actions, params[0])
    dist.proba_distribution(*params)
    assert dist.gaussian_actions is None


def test_exploration_matrices_are_drawn_on_demand_only() -> None:
    dist = StateDependentNoiseDistribution(2)
    _, log_std = dist.proba_distribution_net(latent_dim=4)
    state, mean = torch.randn(1, 4), torch.zeros(1, 2)
    first = dist.actions_from_params(mean, log_std, state)
    assert torch.equal(first, dist.actions_from_params(mean, log_std, state))
    dist.proba_distribution(mean, log_std, state)
    dist.sample_weights(log_std)
    assert not torch.equal(first, dist.sample())
    dist.sample_weights(log_std, batch_size=3)
    assert dist.exploration_matrices.shape == (3, 4, 2)
    states = state.expand(3, 4)
    noise = dist.get_noise(states)
    torch.testing.assert_close(noise, torch.einsum("bl,bla->ba", states, dist.exploration_matrices))
    torch.testing.assert_close(dist.get_noise(state.expand(5, 4)), state.expand(5, 4) @ dist.exploration_mat)
    assert torch.equal(dist.get_std(log_std), log_std.exp())


def test_the_bijector_is_its_own_inverse() -> None:
    x = torch.linspace(-3, 3, 13, dtype=F64)
    bijector = TanhBijector()
    torch.testing.assert_close(bijector.inverse(bijector.forward(x)), x)
    torch.testing.assert_close(TanhBijector.atanh(TanhBijector.forward(x)), x)
    torch.testing.assert_close(bijector.log_prob_correction(x), torch.log(1 - torch.tanh(x) ** 2))


def test_spaces_without_a_distribution_are_refused() -> None:
    with pytest.raises(NotImplementedError, match=r"over the action space Dict.*Use polyak\.PPO"):
        make_proba_distribution(spaces.Dict({"a": spaces.Discrete(2)}))
    with pytest.raises(AssertionError, match=r"Multi-dimensional MultiBinary(.*) action space is not supported"):
        make_proba_distribution(spaces.MultiBinary([2, 3]))


# --- copies ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
def test_a_copy_keeps_the_parameters_that_the_original_replaces(name: str) -> None:
    dist = made(name)
    old = copy.copy(dist)
    mode = dist.mode()
    assert torch.equal(old.mode(), mode)
    dist.proba_distribution(*[params + 0.5 * torch.randn_like(params) for params in parameters(name)])
    assert torch.equal(old.mode(), mode)
    assert (kl_divergence(old, dist) > 0).all()


@pytest.mark.parametrize("name", FAMILIES)
def test_deep_copies_and_pickles_leave_the_batch_behind(name: str) -> None:
    dist = made(name)
    dist.sample()
    for twin in (copy.deepcopy(dist), pickle.loads(pickle.dumps(dist))):
        assert twin.distribution is None
        assert twin.family == dist.family
        assert torch.equal(twin.proba_distribution(*parameters(name)).mode(), twin.mode())


@pytest.mark.parametrize("use_sde", [False, True])
@pytest.mark.parametrize("algorithm", [PPO, SAC])
def test_a_policy_is_copied_without_graphs_and_with_draws_of_its_own(algorithm: Any, use_sde: bool) -> None:
    policy = algorithm("MlpPolicy", "Pendulum-v1", use_sde=use_sde, **TINY).policy
    batch, _ = policy.obs_to_tensor(torch.zeros(4, 3).numpy())
    policy.act(batch)
    for twin in (copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))):
        acting, theirs = getattr(policy, "actor", policy), getattr(twin, "actor", twin)
        assert theirs.action_dist.distribution is None
        assert acting.action_dist.distribution is not None
        if use_sde:
            assert theirs.action_dist.noise is theirs.exploration_noise
            assert theirs.action_dist._log_std is theirs.log_std
            assert torch.equal(theirs.action_dist.exploration_mat, acting.action_dist.exploration_mat)
            twin.reset_noise()
            assert not torch.equal(theirs.action_dist.exploration_mat, acting.action_dist.exploration_mat)


# --- a user's own ---------------------------------------------------------------------------------------------------


class Spiky(Distribution):
    """Laplace, with nothing but what is abstract in Stable-Baselines3."""

    def __init__(self, action_dim: int) -> None:
        super().__init__()
        self.action_dim = action_dim
        self.bounds = torch.tensor([-1.0, 1.0])

    def proba_distribution_net(self, latent_dim: int) -> nn.Module:
        return nn.Linear(latent_dim, self.action_dim)

    def proba_distribution(self, mean: Tensor) -> "Spiky":  # type: ignore[override]
        self.distribution = td.Laplace(mean, torch.ones_like(mean))
        return self

    def log_prob(self, actions: Tensor) -> Tensor:
        return sum_independent_dims(self.distribution.log_prob(actions))

    def entropy(self) -> Tensor:
        return sum_independent_dims(self.distribution.entropy())

    def sample(self) -> Tensor:
        return self.distribution.rsample()

    def mode(self) -> Tensor:
        return self.distribution.mean

    def actions_from_params(self, mean: Tensor, deterministic: bool = False) -> Tensor:  # type: ignore[override]
        return self.proba_distribution(mean).get_actions(deterministic)

    def log_prob_from_params(self, mean: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        actions = self.actions_from_params(mean)
        return actions, self.log_prob(actions)


class SpikyPolicy(policies.ActorCriticPolicy):
    def _build(self, lr_schedule: Any) -> None:
        self.action_dist = Spiky(1)
        super()._build(lr_schedule)


def test_a_distribution_needs_only_what_is_abstract_in_the_peer() -> None:
    with pytest.raises(TypeError, match="abstract"):
        Distribution()  # type: ignore[abstract]
    dist = Spiky(2)
    assert dist.distribution is None
    mean = torch.randn(6, 2, requires_grad=True) * 1
    dist.proba_distribution(mean)
    old = copy.copy(dist)
    dist.proba_distribution(mean + 1)
    reference = td.kl_divergence(td.Laplace(mean, 1.0), td.Laplace(mean + 1, 1.0))
    torch.testing.assert_close(kl_divergence(old, dist), reference)
    torch.testing.assert_close(old.kl(dist), reference.sum(1))
    twin = copy.deepcopy(dist)
    assert twin.distribution is None
    assert torch.equal(twin.bounds, dist.bounds)


@pytest.mark.parametrize("algorithm", [PPO, TRPO])
def test_a_policy_learns_with_a_distribution_of_a_users_own(algorithm: Any) -> None:
    model = algorithm(SpikyPolicy, "Pendulum-v1", n_steps=32, batch_size=16, **TINY)
    before = model.policy.parameters_to_vector()
    model.learn(64)
    assert (model.policy.parameters_to_vector() != before).any()
    assert not hasattr(model.policy, "log_std")
    batch, _ = model.policy.obs_to_tensor(torch.zeros(4, 3).numpy())
    assert isinstance(model.policy.get_distribution(batch).distribution, td.Laplace)
    assert isinstance(copy.deepcopy(model.policy).action_dist, Spiky)


def test_a_subclass_may_assign_an_object_of_torch() -> None:
    class Wide(DiagGaussianDistribution):
        def proba_distribution(self, mean_actions: Tensor, log_std: Tensor) -> "Wide":  # type: ignore[override]
            self.distribution = td.Normal(mean_actions, 2 * log_std.exp())
            return self

    class WideSquashed(SquashedDiagGaussianDistribution):
        proba_distribution = Wide.proba_distribution  # type: ignore[assignment]

    class Soft(MultiCategoricalDistribution):
        def proba_distribution(self, action_logits: Tensor) -> "Soft":  # type: ignore[override]
            self.distribution = [td.Categorical(logits=part / 2) for part in action_logits.split([3, 2], dim=1)]
            return self

    mean, log_std = torch.randn(6, 2, dtype=F64), torch.zeros(2, dtype=F64)
    actions = torch.rand(6, 2, dtype=F64) / 2
    for own, plain in ((Wide(2), DiagGaussianDistribution(2)), (WideSquashed(2), SquashedDiagGaussianDistribution(2))):
        own.proba_distribution(mean, log_std)
        plain.proba_distribution(mean, log_std + torch.tensor(2.0, dtype=F64).log())
        torch.testing.assert_close(own.log_prob(actions), plain.log_prob(actions))
        assert torch.equal(own.mode(), plain.mode())
        torch.manual_seed(1)
        first = own.log_prob_from_params(mean, log_std)
        torch.manual_seed(1)
        second = plain.log_prob_from_params(mean, log_std + torch.tensor(2.0, dtype=F64).log())
        torch.testing.assert_close(first, second)
    logits = torch.randn(6, 5, dtype=F64)
    soft, plain_choices = Soft([3, 2]).proba_distribution(logits), MultiCategoricalDistribution([3, 2])
    torch.testing.assert_close(soft.entropy(), plain_choices.proba_distribution(logits / 2).entropy())


def test_an_actor_samples_from_the_distribution_that_a_user_put_there() -> None:
    class Shifted(SquashedDiagGaussianDistribution):
        def sample(self) -> Tensor:
            return super().sample() / 2 + 0.5

    model = SAC("MlpPolicy", "Pendulum-v1", **TINY)
    model.policy.actor.action_dist = Shifted(1)
    batch, _ = model.policy.obs_to_tensor(torch.zeros(50, 3).numpy())
    assert (model.policy.act(batch) >= 0).all()
    assert (model.policy.actor.action_log_prob(batch)[0] >= 0).all()
