"""PETS and MBPO: the likelihood of a model and its fit, plans, and imagined steps among real ones."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch.distributions import Bernoulli, Independent, Normal

import polyak
from polyak import MBPO, PETS
from polyak.algorithms.model_based.dynamics import DynamicsModel, EnsembleLinear, soft_bounds
from polyak.algorithms.model_based.fitting import (
    LEAST_GAIN,
    ModelLearner,
    bounds_loss,
    likelihood_loss,
    rows_of,
    termination_loss,
)
from polyak.algorithms.model_based.imagining import Imagining, ImaginingMemory, imagine
from polyak.algorithms.model_based.planning import PlanningPolicy, cross_entropy, truncated_normal
from polyak.envs import VecNormalize, make_vec_env
from polyak.experience import ReplayBuffer, Transition
from polyak.hyperparameters.declaration import HyperparameterError
from polyak.learning.learner import LearnerRecipe, OptimizerRecipe
from polyak.nn.errors import PolicyError
from tests.pairs import one_of_each
from tests.tolerance import bound, sampling
from tests.trials import trial
from tests.worlds import World

S, A = 2, 1
STATES = spaces.Box(-np.inf, np.inf, (S,), np.float32)
ACTIONS = spaces.Box(-3.0, 5.0, (A,), np.float32)
STD = 0.1


def doubles(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def linear(matrices: list[list[list[float]]], gain: float = 0.0, **options: Any) -> DynamicsModel:
    """A model in float64 whose members move a state x to M x, with deviation STD, for a reward of ``gain`` times the
    first number of x plus the action."""
    model = DynamicsModel(STATES, ACTIONS, n_members=len(matrices), net_arch=[], **options).double()
    layer: Any = model.layers[0]
    with torch.no_grad():
        for parameter in (*layer.parameters(), model.least_log_var, model.most_log_var):
            parameter.zero_()
        for k, matrix in enumerate(matrices):
            layer.weight[k, :S, :S] = torch.tensor(matrix, dtype=torch.float64).T - torch.eye(S)
        layer.weight[:, 0, S] = gain
        layer.weight[:, S, S] = 1.0
        layer.bias[:, 0, S + 1 : -1] = -200.0  # far below the least log-variance
        model.least_log_var.fill_(2 * np.log(STD))
    return model


def learner(most: int = 3, **options: Any) -> ModelLearner:
    values = {"holdout": 0.25, "patience": most, "bounds_weight": 0.01}
    make = lambda: DynamicsModel(STATES, ACTIONS, net_arch=[8], **options)  # noqa: E731
    return ModelLearner(LearnerRecipe(ModelLearner, make, OptimizerRecipe(torch.optim.Adam), 1e-2, values))


def rows(n: int, noise: float = 0.0, seed: int = 0) -> Transition:
    """Steps x' = x + (u, -x_0 / 2) + noise for a reward u, none of which is the last of an episode."""
    generator = torch.Generator().manual_seed(seed)
    x, u = torch.randn(n, S, generator=generator), torch.rand(n, A, generator=generator) * 2 - 1
    then = x + torch.cat([u, -0.5 * x[:, :1]], 1) + noise * torch.randn(n, S, generator=generator)
    return Transition(x, u, u[:, 0], then, torch.ones(n), torch.ones(n))


# -- likelihood --------------------------------------------------------------------------------------------------------


def test_the_likelihood_is_that_of_torchs_distributions() -> None:
    mean, log_var, target, logit = doubles(3, 7, 4), doubles(3, 7, 4, seed=1), doubles(3, 7, 4, seed=2), doubles(3, 7)
    normal = Independent(Normal(mean, (0.5 * log_var).exp()), 1)
    torch.testing.assert_close(likelihood_loss(mean, log_var, target), -normal.log_prob(target).mean(1))
    ends = (target[..., 0] > 0).double()
    torch.testing.assert_close(termination_loss(logit, ends), -Bernoulli(logits=logit).log_prob(ends).mean(1))


def test_log_variances_stay_between_soft_bounds() -> None:
    least, most = torch.tensor(-4.0).double(), torch.tensor(1.0).double()
    raw = torch.linspace(-60, 60, 241, dtype=torch.float64)
    found = soft_bounds(raw, least, most)
    assert (found.diff() >= 0).all()
    assert found[0] == pytest.approx(-4)
    assert found[-1] == pytest.approx(1 + np.log1p(np.exp(-5)))
    by_hand = [1 - np.log1p(np.exp(1 - x)) for x in raw.tolist()]
    by_hand = [-4 + np.log1p(np.exp(x + 4)) for x in by_hand]
    np.testing.assert_allclose(found, by_hand, rtol=0, atol=bound(10, 60, np.float64))
    assert bounds_loss(least.expand(2, 1, 3), most.expand(2, 1, 3)) == 2 * 3 * 5


def test_an_ensemble_is_so_many_separate_networks() -> None:
    layer, x = EnsembleLinear(3, 4, 2).double(), doubles(3, 5, 4)
    for k in range(3):
        one = torch.nn.functional.linear(x[k], layer.weight[k].T, layer.bias[k, 0])
        torch.testing.assert_close(layer(x)[k], one)
    chosen = torch.tensor([2, 0])
    torch.testing.assert_close(layer(x[chosen], chosen), layer(x)[chosen])


def test_a_member_learns_from_its_own_rows_alone() -> None:
    model = learner(n_members=3)
    x = rows(12)
    index = torch.arange(12).reshape(3, 4)
    batch = Transition(*(getattr(x, name)[index] for name in Transition._fields[:6]))
    losses = model.losses(batch)
    weights = model.model.layers[0].weight
    (gradient,) = torch.autograd.grad(losses[1], [weights])
    assert gradient[1].abs().sum() > 0
    assert gradient[[0, 2]].abs().sum() == 0
    same = model.losses(x)
    torch.testing.assert_close(same.shape, torch.Size([3]))


# -- the fit -----------------------------------------------------------------------------------------------------------


class Watched(ModelLearner):
    """Keeps what the holdout's losses were."""

    def _held_losses(self, held: Transition) -> Tensor:
        found = super()._held_losses(held)
        self.seen = [*getattr(self, "seen", []), (held, found)]
        return found


def watched(steps: int, data: Transition, patience: int, **options: Any) -> tuple[Watched, Any]:
    torch.manual_seed(0)
    made = learner(patience, **options)
    made.__class__ = Watched
    return made, made.fit(data, steps, 16)  # type: ignore[return-value]


def test_members_end_with_the_weights_of_their_least_loss_on_the_holdout() -> None:
    model, fit = watched(400, rows(80, noise=0.3), 4, n_members=4, n_elites=2)
    held, losses = model.seen[0][0], torch.stack([found for _, found in model.seen])
    assert len(held.rewards) == 20
    ends = model.losses(held)
    assert (ends <= losses[0]).all()
    assert (ends <= losses.min(0).values + LEAST_GAIN).all()
    assert all((losses == end).any() for end in ends)
    assert set(model.model.elites.tolist()) == set(ends.argsort()[:2].tolist())
    assert fit.steps == len(fit.metrics["model_loss"])


def test_a_fit_stops_when_the_holdout_says_so() -> None:
    noise = rows(80, noise=1.0)._replace(rewards=torch.randn(80, generator=torch.Generator().manual_seed(3)))
    model, fit = watched(5_000, noise, 2, n_members=2)
    assert fit.steps < 5_000
    losses = torch.stack([found for _, found in model.seen])
    best, waited = losses[0], 0
    for found in losses[1:]:
        better = found < best - LEAST_GAIN
        waited = 0 if better.any() else waited + 1
        best = torch.where(better, found, best)
    assert waited == 2
    assert fit.steps == 4 * (len(losses) - 1)  # 60 rows in minibatches of 16
    assert watched(3, noise, 2)[1].steps == 3


def test_a_fitted_model_knows_the_dynamics_and_their_noise() -> None:
    data = rows(600, noise=0.2)
    model = watched(600, data, 3, n_members=2)[0].model
    test = rows(500, seed=1)
    found = model.advance(test.observations.expand(2, -1, -1), test.actions.expand(2, -1, -1))
    error = (found.next_observations - test.next_observations).abs().mean()
    assert error < 0.1  # half of the noise that it was shown
    assert (found.rewards - test.rewards).abs().mean() < 0.1
    assert not found.terminated.any()
    log_var = model(test.observations.expand(2, -1, -1), test.actions.expand(2, -1, -1)).log_var[..., :S]
    deviation = ((0.5 * log_var).exp() * model.target_std[:S]).mean((0, 1))
    np.testing.assert_allclose(deviation.detach(), 0.2, rtol=0.25)


def test_terminations_are_learned_where_there_are_any() -> None:
    data = rows(600)
    data = data._replace(discounts=(data.observations[:, 0] < 0.5).float())
    model = watched(400, data, 3, n_members=2)[0].model
    test = rows(400, seed=1)
    ends = model.advance(test.observations.expand(2, -1, -1), test.actions.expand(2, -1, -1)).terminated
    assert (ends == (test.observations[:, 0] >= 0.5)).float().mean() > 0.9


def test_rows_are_those_of_all_buffers_with_terminations_apart_from_time_limits() -> None:
    buffers = [ReplayBuffer(10, STATES, ACTIONS, "cpu", n_envs=n) for n in (1, 2)]
    for n, buffer in zip((1, 2), buffers, strict=True):
        for t in range(3):
            x = np.full((n, S), t, np.float32)
            infos = [{"TimeLimit.truncated": i == 1} for i in range(n)]
            buffer.add(x, x + 1, x[:, :A], x[:, 0], np.array([t == 2] * n), infos)
    found = rows_of([*buffers, None], torch.device("cpu"))
    assert found.rewards.tolist() == [0, 1, 2, 0, 0, 1, 1, 2, 2]
    assert found.discounts.tolist() == [1, 1, 0, 1, 1, 1, 1, 0, 1]
    assert torch.equal(found.next_observations, found.observations + 1)  # type: ignore[operator]


# -- planning ----------------------------------------------------------------------------------------------------------


def test_truncated_normals_have_their_distribution() -> None:
    uniform = torch.linspace(0, 1, 100_001, dtype=torch.float64)[:-1]
    found = truncated_normal(uniform)
    assert found.min() == pytest.approx(-2)
    assert found.max() < 2
    normal = Normal(torch.tensor(0.0).double(), torch.tensor(1.0).double())
    below = (normal.cdf(found) - normal.cdf(torch.tensor(-2.0).double())) / 0.954499736103642
    torch.testing.assert_close(below, uniform, rtol=0, atol=1e-9)


@pytest.mark.parametrize("momentum", [0.0, 0.2])
def test_cross_entropy_finds_the_optimum_of_a_quadratic(momentum: float) -> None:
    best = torch.tensor([[[0.5, -0.3], [0.0, 0.8]], [[-0.6, 0.2], [0.4, -0.1]]]).double()
    torch.manual_seed(0)
    noise = truncated_normal(torch.rand(2, 12, 300, 2, 2, dtype=torch.float64))
    seen: list[Tensor] = []

    def value(plans: Tensor, iteration: int) -> Tensor:
        assert iteration == len(seen)
        seen.append(plans)
        return -((plans - best[:, None]) ** 2).sum((2, 3))

    found = cross_entropy(value, torch.zeros_like(best), noise, 30, momentum)
    assert (found - best).abs().max() < 0.01
    assert all(plans.abs().max() <= 1 for plans in seen)
    seen.clear()
    left = cross_entropy(value, torch.ones_like(best), noise, 30, momentum)  # from a bound
    assert (left < (1 + best) / 2).all()
    outside = cross_entropy(lambda plans, _: plans.sum((2, 3)), torch.zeros_like(best), noise, 30, momentum)
    assert (outside > 0.9).all()
    assert (outside <= 1).all()


def test_one_iteration_of_cross_entropy_by_hand() -> None:
    noise = torch.tensor([1.0, -2.0, 0.5, 2.0]).double().reshape(1, 1, 4, 1, 1)
    mean = torch.tensor([[[0.6]]]).double()  # candidates 1, -0.4, 0.85 and 1
    found = cross_entropy(lambda plans, _: -plans[..., 0, 0], mean, noise, 2, 0.25)
    assert found.item() == pytest.approx(0.25 * 0.6 + 0.75 * (-0.4 + 0.85) / 2)


def by_hand(
    matrices: Any, order: Any, plan: list[float], noise: np.ndarray, gamma: float, gain: float, ends: float
) -> float:
    """The mean return of the particles of one plan, particle by particle."""
    particles, members = len(noise), len(matrices)
    states, alive, total = [np.array([1.0, -1.0]) for _ in range(particles)], [1.0] * particles, 0.0
    for t, action in enumerate(plan):
        if order is not None:
            dealt = np.argsort(order[:, t])
            states, alive = [states[i] for i in dealt], [alive[i] for i in dealt]
        for p in range(particles):
            matrix = np.array(matrices[p // (particles // members)])
            reward = gain * states[p][0] + action + STD * noise[p, t, S]
            states[p] = matrix @ states[p] + STD * noise[p, t, :S]
            total += gamma**t * alive[p] * reward / particles
            alive[p] *= states[p][0] <= ends
    return total


@pytest.mark.parametrize("propagation", ["ts1", "tsinf"])
@pytest.mark.parametrize("ends", [np.inf, 1.3])
def test_particles_follow_a_linear_gaussian_system(propagation: Any, ends: float) -> None:
    matrices = [[[1.1, 0.0], [0.2, 0.9]], [[0.8, -0.3], [0.0, 1.0]]]
    stops = (lambda x, u, then: then[:, 0] > ends) if ends < np.inf else None
    options: dict[str, Any] = {"n_members": 2, "termination_function": stops, "gamma": 0.9, "propagation": propagation}
    policy = PlanningPolicy(STATES, ACTIONS, horizon=4, n_particles=6, n_candidates=3, n_top=1, **options).double()
    policy.model = linear(matrices, gain=0.7, termination_function=stops)
    states, plans = torch.tensor([[1.0, -1.0], [1.0, -1.0]]).double(), doubles(2, 3, 4, A).clamp(-1, 1)
    noise = {"outcomes": doubles(2, 6, 4, S + 1, seed=1), "order": doubles(2, 6, 4, seed=2)}
    if propagation == "tsinf":
        noise.pop("order")
    found = policy.values(states, plans, noise)
    for b in range(2):
        order = noise["order"][b].numpy() if "order" in noise else None
        for n in range(3):
            want = by_hand(matrices, order, plans[b, n, :, 0].tolist(), noise["outcomes"][b].numpy(), 0.9, 0.7, ends)
            assert found[b, n].item() == pytest.approx(want, rel=1e-12)


def test_particles_have_the_moments_of_the_system() -> None:
    model, n, steps = linear([[[0.9, 0.0], [0.0, 0.5]]]), 4_000, 5
    x = torch.tensor([1.0, -1.0]).double().expand(1, n, S)
    torch.manual_seed(0)
    for _ in range(steps):
        x = model.advance(x, torch.zeros(1, n, A).double(), torch.randn(1, n, S + 1).double()).next_observations
    for i, a in enumerate((0.9, 0.5)):
        variance = STD**2 * sum(a ** (2 * t) for t in range(steps))
        assert x[0, :, i].mean().item() == pytest.approx((1.0, -1.0)[i] * a**steps, abs=sampling(n, variance**0.5))
        assert x[0, :, i].var().item() == pytest.approx(variance, abs=sampling(n, 2**0.5 * variance))


def planner(**options: Any) -> PlanningPolicy:
    sizes = {"horizon": 4, "n_candidates": 30, "n_top": 5, "n_iterations": 3, "n_particles": 2, "n_members": 2}
    return PlanningPolicy(STATES, ACTIONS, net_arch=[8], **{**sizes, **options})


def test_a_plan_begins_with_the_rest_of_the_one_before() -> None:
    policy, obs = planner(), torch.randn(3, S)
    noise = policy.draw_noise(3)
    first = policy.decide(obs, noise)
    assert first.state is not None
    rest = first.state["plan"]
    assert rest.shape == (3, 4, A)
    assert torch.equal(rest[:, -1], torch.zeros(3, A))
    again = policy.decide(obs, noise, {"plan": torch.zeros(3, 4, A)})
    assert torch.equal(first.actions, again.actions)
    assert not torch.equal(policy.decide(obs, noise, first.state).actions, first.actions)
    narrow = planner(n_iterations=1, n_top=30, momentum=1.0)  # which keeps its plan as it is
    plan = torch.rand(2, 4, A)
    kept = narrow.decide(obs[:2], narrow.draw_noise(2), {"plan": plan})
    assert torch.equal(kept.actions, plan[:, 0])
    assert kept.state is not None
    assert torch.equal(kept.state["plan"][:, :-1], plan[:, 1:])


def test_deterministic_plans_are_always_the_same() -> None:
    policy, obs = planner(), np.ones(S, np.float32)
    assert policy.predict(obs, deterministic=True)[0] == policy.predict(obs, deterministic=True)[0]
    assert policy.predict(obs)[0] != policy.predict(obs)[0]
    batch = np.stack([-obs, obs])
    assert policy.predict(batch, deterministic=True)[0][1] == pytest.approx(policy.predict(obs, deterministic=True)[0])
    assert policy.predict(batch, deterministic=True)[1][0].shape == (4, 2, A)  # type: ignore[index]


def test_functions_are_asked_in_the_units_of_the_environment() -> None:
    def reward(x: Tensor, u: Tensor, then: Tensor) -> Tensor:
        assert (x.shape[1:], u.shape[1:], then.shape[1:]) == ((S,), (A,), (S,))
        return u[:, 0] + 10 * then[:, 0]

    model = linear([[[1.0, 0.0], [0.0, 1.0]]] * 2, reward_function=reward, termination_function=lambda x, u, y: u < 1)
    x, u = doubles(2, 3, S), torch.tensor([-1.0, 0.0, 1.0]).double().expand(2, 3)[..., None]
    found = model.advance(x, u)
    torch.testing.assert_close(found.rewards, torch.tensor([-3.0, 1.0, 5.0]).double() + 10 * x[..., 0])
    assert found.terminated.tolist() == [[True, False, False]] * 2
    with pytest.raises(PolicyError, match="one number for each of 6 rows"):
        linear([[[1.0, 0.0], [0.0, 1.0]]] * 2, reward_function=lambda x, u, then: then).advance(x, u)


# -- imagined steps ----------------------------------------------------------------------------------------------------


def sac(**options: Any) -> Any:
    env = gym.wrappers.TimeLimit(Drift(), 20)
    return MBPO(**{**trial(MBPO), "env": env, "device": "cpu", "compile": False, **options})


class Drift(World):
    """x' = x + u / 10, for a reward of -x^2."""

    observation_space, action_space = STATES, ACTIONS

    def begin(self) -> None:
        self.x = self.np_random.normal(size=S).astype(np.float32)

    def look(self) -> np.ndarray:
        return self.x

    def act(self, action: np.ndarray) -> float:
        self.x = (self.x + action / 10).astype(np.float32)
        return -float((self.x**2).sum())


def test_imagined_rows_are_what_the_model_predicts() -> None:
    policy = sac().policy
    model = linear([[[0.9, 0.1], [0.0, 1.1]], [[1.2, 0.0], [0.3, 0.8]]], gain=1.0).float()
    with torch.no_grad():
        model.least_log_var.fill_(-80.0)
    torch.manual_seed(0)
    made = imagine(model, policy, torch.randn(6, S), 3)
    x, then = (torch.from_numpy(made[name][:, 0]) for name in ("observations", "next_observations"))
    u, r = torch.from_numpy(made["actions"][:, 0]), torch.from_numpy(made["rewards"][:, 0])
    assert x.shape == (18, S)
    found = model.advance(x.expand(2, -1, -1), u.expand(2, -1, -1))
    by_member = (found.next_observations - then).abs().amax(2) + (found.rewards - r).abs()
    assert (by_member.amin(0) < bound(20, 10)).all()
    chosen = by_member.argmin(0).reshape(6, 3)
    assert (chosen.sum(0) == 3).all()  # each elite continues half of the rollouts at every step
    assert torch.equal(then.reshape(6, 3, S)[:, :-1], x.reshape(6, 3, S)[:, 1:])
    last = np.tile([0.0, 0.0, 1.0], 6)
    np.testing.assert_array_equal(made["dones"][:, 0], last)
    np.testing.assert_array_equal(made["timeouts"][:, 0], last)


def test_imagined_rollouts_end_where_they_terminate() -> None:
    stops = lambda x, u, then: then[:, 0] > 2  # noqa: E731
    model = linear([[[2.0, 0.0], [0.0, 1.0]]], termination_function=stops).float()
    with torch.no_grad():
        model.least_log_var.fill_(-80.0)
    starts = torch.tensor([[1.5, 0.0], [0.8, 0.0], [0.1, 0.0]])
    made = imagine(model, sac().policy, starts, 3)
    np.testing.assert_allclose(made["observations"][:, 0, 0], [1.5, 0.8, 1.6, 0.1, 0.2, 0.4], rtol=1e-5)
    assert made["dones"][:, 0].tolist() == [1, 0, 1, 0, 0, 1]
    assert made["timeouts"][:, 0].tolist() == [0, 0, 0, 0, 0, 1]
    buffer = ReplayBuffer(10, STATES, ACTIONS, "cpu")
    buffer.take_over(made)
    batch = next(iter(buffer.transitions(200, 0.9)))[0]
    pairs = torch.stack([batch.observations[:, 0], batch.discounts], 1).double()  # type: ignore[index]
    seen = {(round(x, 3), round(discount, 3)) for x, discount in pairs.tolist()}
    assert seen == {(1.5, 0.0), (0.8, 0.9), (1.6, 0.0), (0.1, 0.9), (0.2, 0.9), (0.4, 0.9)}


def filled(reward: float, n: int = 20) -> ReplayBuffer:
    buffer = ReplayBuffer(50, STATES, ACTIONS, "cpu", seed=0)
    for _ in range(n):
        x = np.zeros((1, S), np.float32)
        buffer.add(x, x, x[:, :A], np.array([reward]), np.array([False]), [{}])
    return buffer


def test_batches_have_their_share_of_real_rows() -> None:
    memory = ImaginingMemory(filled(1.0), imagined=filled(0.0, 0), real_share=0.25)
    assert all(batch.rewards.sum() == 16 for batch, _ in memory.batches(16, 0.9, 3))  # nothing is imagined yet
    memory.imagined = filled(0.0)
    assert [batch.rewards.sum().item() for batch, _ in memory.batches(16, 0.9, 3)] == [4, 4, 4]
    memory.real_share = 0.05  # of 16 rows, 0.8
    real = [batch.rewards.sum().item() for batch, _ in memory.batches(16, 0.9, 500)]
    assert np.mean(real) == pytest.approx(0.8, abs=sampling(500, (16 * 0.05 * 0.95) ** 0.5))
    for share, many in ((0.0, 0), (1.0, 16)):
        memory.real_share = share
        assert [batch.rewards.sum() for batch, _ in memory.batches(16, 0.9, 2)] == [many, many]
    memory.recorded, memory.real_share = filled(100.0), 0.5
    assert all(batch.rewards.sum() == 4 * 1 + 4 * 100 for batch, _ in memory.batches(16, 0.9, 3, share=0.5))


def test_mbpo_imagines_at_its_time_from_states_that_were_met() -> None:
    model = sac(model_freq=30, n_rollouts=9, rollout_length=2, imagined_size=1_000).learn(110)
    assert model.memory.imagined.size() == 3 * 10 * 2  # at steps 41, 71, 101; 9 made a multiple of 2
    assert model.replay.fitted_at == 101
    starts = model.memory.imagined.contents()["observations"][::2, 0]
    met = model.replay_buffer.contents()["observations"][:, 0]
    assert all((met == x).all(1).any() for x in starts)
    assert set(model.logger.name_to_value) >= {"train/model_loss", "train/model_holdout_loss"}


@pytest.mark.parametrize("base", one_of_each(["TD3", "REDQ", "TQC", "DDPG"], "TD3", "REDQ"))
def test_other_algorithms_imagine_as_well(base: str, tmp_path: Path) -> None:
    @dataclass(eq=False, repr=False)
    class Own(Imagining, getattr(polyak, base)):  # type: ignore[misc]
        """Of a program's own."""

    known = {name: value for name, value in trial(MBPO).items() if name != "gradient_steps"}
    model: Any = Own(**{**trial(getattr(polyak, base)), **known, "device": "cpu"}).learn(90)
    assert model.memory.imagined.size() > 0
    assert model.learning_rate == getattr(polyak, base)("MlpPolicy", "Pendulum-v1").learning_rate
    model.save(tmp_path / "model", include=["replay_buffer"])
    again = Own.load(tmp_path / "model", env="Pendulum-v1", resume=True, device="cpu")
    assert again.memory.imagined.size() == model.memory.imagined.size()
    ours, theirs = (m.model_learner.networks() for m in (model, again))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert again.get_parameters().keys() == model.get_parameters().keys()
    again.set_parameters(tmp_path / "model")


def test_it_imagines_observations_before_normalisation() -> None:
    env = VecNormalize(make_vec_env(lambda: gym.wrappers.TimeLimit(Drift(), 20), 2))
    model = sac(env=env).learn(100)
    met, made = (buffer.contents()["observations"] for buffer in (model.replay_buffer, model.memory.imagined))
    assert all((met.reshape(-1, S) == x).all(1).any() for x in made[::2, 0])


# -- what is refused ---------------------------------------------------------------------------------------------------


class Parts(Drift):
    observation_space = spaces.Dict(a=spaces.Box(-1, 1, (2,)))


@pytest.mark.parametrize("algorithm", [PETS, MBPO])
def test_what_a_model_cannot_predict_is_refused(algorithm: Any) -> None:
    with pytest.raises(ValueError, match="Discrete"):
        algorithm("MlpPolicy", "CartPole-v1")
    with pytest.raises(ValueError, match="Dict"):
        algorithm("MultiInputPolicy" if algorithm is MBPO else "MlpPolicy", Parts())


def test_what_does_not_fit_together_is_refused() -> None:
    small = trial(PETS)
    with pytest.raises(HyperparameterError, match="n_top=11 cannot be used: there are only n_candidates=10"):
        PETS(**{**small, "n_top": 11})
    with pytest.raises(PolicyError, match="n_particles=5 must be a multiple of n_elites=2"):
        PETS(**{**small, "n_particles": 5})
    with pytest.raises(TypeError, match="unexpected keyword argument 'n_member'"):
        PETS(**{**small, "policy_kwargs": {"n_member": 2}})
    with pytest.raises(TypeError, match="unexpected keyword argument 'n_member'"):
        MBPO(**{**trial(MBPO), "model_kwargs": {"n_member": 2}})
    with pytest.raises(TypeError, match="prioritized"):
        MBPO(**{**trial(MBPO), "prioritized": True})
    with pytest.raises(HyperparameterError, match="without memory"):
        MBPO(**{**trial(MBPO), "policy_kwargs": {"memory": "lstm"}})
    with pytest.raises(PolicyError, match="n_elites must be from 1 to n_members=2, got 3"):
        DynamicsModel(STATES, ACTIONS, n_members=2, n_elites=3)
