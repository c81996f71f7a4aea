"""ARS: its step by hand, trials that are worth what they would be alone, many of them at once."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from polyak import ARS
from polyak.algorithms.ars import ARSLearner, Trials, ascent_direction
from polyak.collecting.candidates import CandidateActor
from polyak.envs import DummyVecEnv, VecNormalize, make_vec_env
from polyak.hyperparameters.declaration import HyperparameterError
from polyak.nn.policies.direct import DirectPolicy
from tests.tolerance import bound
from tests.worlds import World


class Track(World):
    """Nothing happens by chance: a state of three numbers that actions push, for 5 to 9 steps, as they are."""

    def __init__(self, discrete: bool = False, picture: bool = False) -> None:
        self.observation_space = spaces.Box(-10, 10, (3,))
        if picture:
            self.observation_space = spaces.Dict({"state": self.observation_space, "n": spaces.Discrete(4)})
        self.action_space = spaces.Discrete(4) if discrete else spaces.Box(-1, 1, (2,))

    def begin(self) -> None:
        self.x = np.array([1.0, -0.5, 0.25])

    def look(self) -> Any:
        state = self.x.astype(np.float32)
        return {"state": state, "n": self.t % 4} if isinstance(self.observation_space, spaces.Dict) else state

    def act(self, action: Any) -> float:
        push = np.array([(1, 0), (-1, 0), (0, 1), (0, -1)][action]) if np.ndim(action) == 0 else action
        self.x = np.clip(0.8 * self.x + 0.5 * np.array([push[0], push[1], push[0] - push[1]]), -10, 10)
        return float(1 - np.square(self.x - 1).sum())

    def over(self) -> bool:
        return self.t >= 5 + int(self.x[0] > 0) * 2 + int(self.x[1] > 0) * 2


def track(n_envs: int, **kwargs: Any) -> DummyVecEnv:
    return DummyVecEnv([lambda: Track(**kwargs) for _ in range(n_envs)])


def return_of(policy: DirectPolicy, weights: torch.Tensor, **kwargs: Any) -> float:
    """What one episode with these weights brings, alone."""
    policy, env = copy.deepcopy(policy), Track(**kwargs)
    policy.load_from_vector(weights.numpy())
    obs, total, over = env.reset()[0], 0.0, False
    while not over:
        obs, reward, over, _, _ = env.step(policy.predict(obs)[0])
        total += reward
    return total


# -- the step ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_top", [1, 2, 4])
def test_the_direction_is_that_of_the_paper(n_top: int) -> None:
    """Line by line of algorithm 2, on a table of returns."""
    plus, minus = [3.0, -1.0, 10.0, 4.0], [5.0, 9.0, 2.0, 4.5]
    deltas = np.random.default_rng(0).normal(size=(4, 6))
    order = sorted(range(4), key=lambda k: max(plus[k], minus[k]), reverse=True)  # 2, 1, 0, 3
    assert order == [2, 1, 0, 3]
    used = [r for k in order[:n_top] for r in (plus[k], minus[k])]
    sigma = (sum((r - sum(used) / len(used)) ** 2 for r in used) / len(used)) ** 0.5
    expected = sum((plus[k] - minus[k]) * deltas[k] for k in order[:n_top]) / (n_top * sigma)
    found, spread = ascent_direction(*(torch.tensor(np.array(x)) for x in (deltas, plus, minus)), n_top)
    assert spread == pytest.approx(sigma, rel=1e-12)
    np.testing.assert_allclose(found, expected, rtol=1e-6 / sigma + 1e-12)  # 1e-6 keeps sigma from 0


def test_equal_returns_lead_nowhere() -> None:
    direction, spread = ascent_direction(torch.randn(3, 5), torch.full((3,), 9.0), torch.full((3,), 9.0), 2)
    assert spread == 0
    assert not direction.any()


@pytest.mark.parametrize("n_top", [None, 2])
def test_the_policy_takes_the_papers_step(n_top: int | None) -> None:
    env = track(2)
    model = ARS("MlpPolicy", env, 4, n_top, learning_rate=0.3, zero_policy=False, seed=0)
    learner, batches = model.learner, []
    update = learner.update
    learner.update = lambda batch: (batches.append(batch), update(batch))[1]
    before = learner.theta().detach().double()
    model.learn(1)
    ((deltas, plus, minus),) = batches
    step = 0.3 * ascent_direction(deltas.double(), plus.double(), minus.double(), n_top or 4)[0]
    assert step.abs().max() > 0.1
    np.testing.assert_allclose(learner.theta().detach(), before + step, rtol=0, atol=bound(8, 20))


def test_the_length_of_trials_follows_a_schedule() -> None:
    model = ARS("LinearPolicy", track(1), 1, delta_std=lambda progress: 0.1 + progress, seed=0)
    moved: list[float] = []
    candidates = model.learner.candidates

    def look(deltas: torch.Tensor) -> torch.Tensor:
        found = candidates(deltas)
        moved.append(((found[0] - model.learner.theta()) / deltas[0]).mean().item())
        return found

    model.learner.candidates = look
    model.learn(100)
    assert moved[0] == pytest.approx(1.1, rel=1e-5)
    assert moved == sorted(moved, reverse=True)
    assert moved[-1] < 0.4


# -- trials ------------------------------------------------------------------------------------------------------------


def trials_of(n_envs: int, policy: str = "LinearPolicy", episodes: int = 1, **kwargs: Any) -> tuple[ARS, Trials]:
    model = ARS(policy, track(n_envs, **kwargs), 5, n_eval_episodes=episodes, delta_std=0.7, seed=0)
    found: list[Trials] = []
    model.learner.update = lambda batch: (found.append(batch), ARSLearner.update(model.learner, batch))[1]
    model.learn(1)
    return model, found[0]


@pytest.mark.parametrize("n_envs", [1, 3, 10, 16])
@pytest.mark.parametrize("policy", ["LinearPolicy", "MlpPolicy"])
@pytest.mark.parametrize("discrete", [False, True])
def test_a_candidate_is_worth_what_it_is_worth_alone(n_envs: int, policy: str, discrete: bool) -> None:
    model, (deltas, plus, minus) = trials_of(n_envs, policy, discrete=discrete)
    assert len({*plus.tolist(), *minus.tolist()}) > 2
    for delta, up, down in zip(deltas, plus, minus, strict=True):  # around a policy that is zero
        assert up == pytest.approx(return_of(model.policy, 0.7 * delta, discrete=discrete), rel=1e-4)
        assert down == pytest.approx(return_of(model.policy, -0.7 * delta, discrete=discrete), rel=1e-4)


def test_more_episodes_make_a_mean() -> None:
    _, once = trials_of(4)
    _, often = trials_of(4, episodes=3)
    torch.testing.assert_close(once.plus, often.plus)  # nothing happens by chance


def test_a_bonus_for_staying_alive_can_be_cancelled() -> None:
    env = make_vec_env("CartPole-v1", n_envs=2, seed=0)
    model = ARS("LinearPolicy", env, 2, alive_bonus_offset=-1.0, seed=0)
    before = model.learner.theta().clone()
    model.learn(1)
    assert torch.equal(model.learner.theta(), before)  # all returns are 0


def test_normalised_observations_go_with_returns_in_the_environments_unit() -> None:
    def best(env: Any) -> float:
        seen: list[Trials] = []
        model = ARS("LinearPolicy", env, 2, seed=0)
        model.learner.update = lambda batch: (seen.append(batch), ARSLearner.update(model.learner, batch))[1]
        model.learn(1)
        return min(seen[0].plus.min().item(), seen[0].minus.min().item())

    normalised = VecNormalize(make_vec_env("Pendulum-v1", n_envs=2, seed=0), clip_reward=0.1)
    assert best(normalised) < -500  # of 200 clipped rewards it would be more than -20
    assert normalised.obs_rms.count > 100


# -- acting ------------------------------------------------------------------------------------------------------------

POLICIES: dict[str, dict[str, Any]] = {
    "linear": {"net_arch": [], "with_bias": False},
    "linear with bias": {"net_arch": []},
    "hidden layers": {"net_arch": [7, 5], "activation_fn": nn.Tanh},
    "an activation that torch computes": {"net_arch": [7], "activation_fn": nn.ELU},
    "an activation with parameters": {"net_arch": [7], "activation_fn": nn.PReLU},
    "clipped": {"net_arch": [7], "squash_output": False},
}


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("actions", [spaces.Discrete(4, start=2), spaces.Box(-2, 2, (2, 3))], ids=["choice", "box"])
@pytest.mark.parametrize("frozen", [False, True])
def test_candidates_act_as_they_would_alone(name: str, actions: spaces.Space, frozen: bool) -> None:
    policy = DirectPolicy(spaces.Box(-1, 1, (2, 3)), actions, **POLICIES[name])
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.normal_()
    if frozen and len(policy.action_net) > 1:
        policy.action_net[0].requires_grad_(False)
    free = [p for p in policy.parameters() if p.requires_grad]
    weights = torch.randn(6, sum(p.numel() for p in free))
    obs = np.random.default_rng(1).normal(size=(6, 2, 3)).astype(np.float32)
    alone = []
    for row in range(6):
        one = copy.deepcopy(policy)
        nn.utils.vector_to_parameters(weights[row], [p for p in one.parameters() if p.requires_grad])
        alone.append(one.predict(obs[row])[0])
    actor = CandidateActor(policy)
    actor.begin(policy, weights)
    np.testing.assert_allclose(actor.act(obs).env_actions, alone, atol=2e-5)
    assert actor._quick is not None  # by numpy
    acted = policy.codec.to_env(actor.choose(policy.obs_to_tensor(obs)[0]).numpy())
    np.testing.assert_allclose(acted, alone, atol=2e-5)
    actor.weights[2] = actor.weights[4]
    same = np.repeat(obs[:1], 6, axis=0)
    np.testing.assert_array_equal(actor.act(same).actions[2], actor.act(same).actions[4])


def test_a_policy_of_ones_own_plays_as_it_says() -> None:
    class Opposite(DirectPolicy):
        def _predict(self, observation: Any, deterministic: bool = False) -> torch.Tensor:
            return -super()._predict(observation, deterministic)

    policy = Opposite(spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (2,)), net_arch=[])
    actor = CandidateActor(policy)
    weights = nn.utils.parameters_to_vector(policy.parameters()).detach().repeat(4, 1)
    actor.begin(policy, weights)
    obs = np.eye(3, dtype=np.float32)[[0, 1, 2, 0]]
    np.testing.assert_allclose(actor.act(obs).env_actions, policy.predict(obs)[0], atol=2e-5)
    np.testing.assert_allclose(
        actor.act(obs).actions, -DirectPolicy.act(policy, torch.as_tensor(obs)).detach(), atol=2e-5
    )


# -- going on ----------------------------------------------------------------------------------------------------------


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(HyperparameterError, match="n_top=9 cannot be used: there are only n_delta=8 directions"):
        ARS("LinearPolicy", "CartPole-v1", n_top=9)
    with pytest.raises(HyperparameterError, match="async_eval=.* cannot be used: give the model several environments"):
        ARS("LinearPolicy", "CartPole-v1").learn(10, async_eval=object())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="LinearPolicy got an unexpected keyword argument 'net_arch'"):
        ARS("LinearPolicy", "CartPole-v1", policy_kwargs={"net_arch": [8]})
    with pytest.raises(ValueError, match="MultiInputPolicy"):
        ARS("LinearPolicy", track(1, picture=True))
