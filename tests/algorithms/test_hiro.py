"""HIRO: goals and their correction by loops, what is stored with steps, and what each level learns from."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

import polyak
from polyak import HIRO
from polyak.algorithms import hiro
from polyak.envs import DummyVecEnv
from polyak.experience import collect
from polyak.hyperparameters.declaration import HyperparameterError
from polyak.nn.errors import PolicyError
from polyak.nn.policies.hierarchical import ELAPSED, GOAL, TARGET
from tests.worlds import World

C = 3


class Drift(World):
    """Actions move a point in the plane, whose third coordinate counts all steps. The reward is the step's number, and
    an episode of ``length`` steps ends in a terminal state, or is truncated."""

    observation_space, action_space = spaces.Box(-1e6, 1e6, (3,), np.float32), spaces.Box(-1.0, 1.0, (2,), np.float32)
    count = 0

    def begin(self) -> None:
        self.here = self.np_random.uniform(-1, 1, 2)

    def look(self) -> np.ndarray:
        return np.array([*self.here, self.count], np.float32)

    def act(self, action: np.ndarray) -> float:
        self.here, self.count = self.here + action, self.count + 1
        return float(self.t)


def model(*lengths: int, terminates: bool = True, **options: Any) -> Any:
    settings: dict[str, Any] = {
        "goal_steps": C,
        "goal_entries": [0, 1],
        "goal_range": [0.5, 2.0],
        "learning_starts": 10_000,
        "buffer_size": 200,
        "batch_size": 8,
        "gradient_steps": -1,
        "gamma": 0.9,
        "reward_scale": 0.5,
        "policy_kwargs": {"net_arch": [8]},
        "device": "cpu",
        "seed": 0,
        "compile": False,
    }
    env = DummyVecEnv([lambda n=n: Drift(length=n, truncates=not terminates) for n in lengths or (7,)])
    return HIRO("MlpPolicy", env, **{**settings, **options})


# -- pure functions ----------------------------------------------------------------------------------------------------


def test_what_is_left_of_a_goal_leads_to_the_same_place() -> None:
    here, goals, then = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, -1.0]]), torch.tensor([[2.5, 2.0]])
    left = hiro.goal_transition(here, goals, then)
    torch.testing.assert_close(left, torch.tensor([[1.5, -1.0]]))
    torch.testing.assert_close(then + left, here + goals)


def test_the_lower_level_earns_minus_the_distance_that_is_left() -> None:
    here, goals, then = torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0]]), torch.tensor([[0.0, 0.0]])
    assert hiro.intrinsic_reward(here, goals, then).tolist() == [-5.0]
    assert hiro.intrinsic_reward(here, goals, then + goals).tolist() == [0.0]


def test_candidates_are_the_recorded_goal_the_reached_one_and_draws_around_it() -> None:
    largest = torch.tensor([1.0, 4.0])
    goals, reached = torch.tensor([[0.5, -1.0]]), torch.tensor([[0.25, 9.0]])
    draws = torch.tensor([[[1.0, -3.0], [-9.0, -4.0]]])
    expected = [[0.5, -1.0], [0.25, 4.0], [0.75, 3.0], [-1.0, 1.0]]
    torch.testing.assert_close(hiro.candidate_goals(goals, reached, draws, largest), torch.tensor([expected]))


def test_the_likelihood_counts_the_steps_that_there_are() -> None:
    torch.manual_seed(0)
    actions, chosen = torch.randn(2, C, 2), torch.randn(2, 4, C, 2)
    valid = torch.tensor([[True, True, True], [True, False, False]])
    got = hiro.log_likelihood(actions, chosen, valid)
    for row in range(2):
        for candidate in range(4):
            steps = [i for i in range(C) if valid[row, i]]
            errors = [float(((actions[row, i] - chosen[row, candidate, i]) ** 2).sum()) for i in steps]
            assert got[row, candidate].item() == pytest.approx(-sum(errors) / 2, rel=1e-5)


# -- acting ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [(7,), (7, 4)])
def test_goals_are_chosen_every_few_steps_and_lead_to_one_target(lengths: tuple[int, ...]) -> None:
    made = model(*lengths)
    made.learn(30 * len(lengths))
    rows, extras = made.replay_buffer.size(), made.replay_buffer.extras
    place = made.replay_buffer.observations[:rows, :, :2]
    for env, length in enumerate(lengths):
        for t in range(rows):
            time = t % length
            goal, target = extras[GOAL][t, env], extras[TARGET][t, env]
            assert extras[ELAPSED][t, env] == time % C
            if time % C:
                before = place[t - 1, env] + extras[GOAL][t - 1, env]
                np.testing.assert_allclose(target, before, rtol=1e-6)
                np.testing.assert_allclose(goal, target - place[t, env], rtol=0, atol=1e-6)
            else:
                assert (np.abs(goal) <= [0.5, 2.0]).all()
            if time == 0:
                assert not target.any()


def test_prediction_carries_the_goal_as_its_state() -> None:
    made = model()
    policy, state = made.policy, None
    observations = [np.array([0.1 * t, -0.2 * t, t], np.float32) for t in range(7)]
    target = None
    for t, observation in enumerate(observations):
        action, state = made.predict(observation, state, deterministic=True)
        seen = torch.as_tensor(observation)[None]
        with torch.no_grad():
            if t % C == 0:
                target = seen[:, :2] + policy.high.actor(seen) * policy.goal_range
            expected = policy.low.actor(policy.beside(seen, target - seen[:, :2]))
        np.testing.assert_allclose(action, expected[0].numpy(), rtol=0, atol=1e-6)
        np.testing.assert_allclose(state[0], target.numpy(), rtol=0, atol=1e-6)
        assert state[1].tolist() == [(t + 1) % C]


def test_a_new_episode_begins_with_a_new_goal() -> None:
    made, observation = model(), np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]], np.float32)
    _, state = made.predict(observation, deterministic=True)
    fresh, _ = made.predict(observation + 0.5, deterministic=True)
    again, after = made.predict(observation + 0.5, state, np.array([True, False]), deterministic=True)
    kept, _ = made.predict(observation + 0.5, state, deterministic=True)
    np.testing.assert_array_equal(again[0], fresh[0])
    np.testing.assert_array_equal(again[1], kept[1])
    assert after[1].tolist() == [1, 2]


def test_noise_is_in_goals_where_actions_are_not_deterministic() -> None:
    made, observation = model(goal_noise=5.0), np.array([0.0, 0.0, 0.0], np.float32)
    targets = np.array([made.predict(observation, deterministic=False)[1][0][0] for _ in range(60)])
    np.testing.assert_allclose(np.abs(targets).max(0), [0.5, 2.0])
    assert len(np.unique(targets, axis=0)) > 4


# -- what each level learns from ---------------------------------------------------------------------------------------


def drawn(made: Any, rows: int) -> polyak.experience.Transition:
    return polyak.experience.Transition.from_samples(made.replay_buffer.sample(rows), made.gamma)


@pytest.mark.parametrize("terminates", [True, False])
@pytest.mark.parametrize("lengths", [(7,), (7, 4)])
def test_levels_learn_from_a_row_and_from_the_interval_around_it(lengths: tuple[int, ...], terminates: bool) -> None:
    made = model(*lengths, terminates=terminates)
    made.learn(40 * len(lengths))
    buffer, learner = made.replay_buffer, made.learner
    size, extras = buffer.size(), buffer.extras
    batch = drawn(made, 200)
    low, high = learner.lower(batch), learner.higher(batch)
    for row in range(200):
        here = batch.observations[row, C - 1].numpy()
        t, env = next(
            (t, env) for t in range(size) for env in range(len(lengths)) if (buffer.observations[t, env] == here).all()
        )
        time, length = t % lengths[env], lengths[env]
        goal, then = extras[GOAL][t, env], buffer.next_observations[t, env]
        np.testing.assert_array_equal(low.observations["here"][row], here)
        np.testing.assert_array_equal(low.observations[GOAL][row], goal)
        left = here[:2] + goal - then[:2]
        np.testing.assert_allclose(low.next_observations[GOAL][row], left, rtol=0, atol=1e-6)
        assert low.rewards[row].item() == pytest.approx(-math.hypot(*left), abs=1e-5)
        assert low.discounts[row].item() == pytest.approx(0.0 if terminates and time == length - 1 else 0.9)

        first = t - time % C
        last = min(first + C, first - first % length + length, size) - 1  # of the goal, the episode, or what is stored
        np.testing.assert_array_equal(high.observations[row], buffer.observations[first, env])
        np.testing.assert_array_equal(high.next_observations[row], buffer.next_observations[last, env])
        earned = buffer.rewards[first : last + 1, env].sum()
        assert high.rewards[row].item() == pytest.approx(0.5 * earned)
        over = terminates and last % length == length - 1
        assert high.discounts[row].item() == pytest.approx(0.0 if over else 0.9)
        assert high.weights[row].item() == 1.0


def test_an_interval_whose_beginning_was_overwritten_does_not_count() -> None:
    made = model(buffer_size=8)
    made.learn(20)  # rows 12 to 19: of the intervals 10-12, 13, 14-16, 17-19
    batch = drawn(made, 100)
    high = made.learner.higher(batch)
    oldest = batch.observations[:, C - 1, 2] == 12
    assert 0 < oldest.sum() < 100
    torch.testing.assert_close(high.weights, (~oldest).float())


def test_the_higher_actor_does_not_learn_from_an_interval_whose_beginning_was_overwritten() -> None:
    """Whatever its rows hold, the gradient is that of the others."""
    made = model(buffer_size=8, policy_delay=1, level_delay=1)
    made.learn(20)
    batch, learner = drawn(made, 100), made.learner
    lost = batch.observations[:, C - 1, 2] == 12
    moved = batch._replace(observations=torch.where(lost[:, None, None], 9.0, batch.observations))
    found = []
    actor = list(made.policy.high.actor.parameters())
    learner.minimise = lambda name, loss: found.append(torch.autograd.grad(loss, actor))
    for one in (batch, moved):
        learner.delayed_step(one, "high")
    kept = batch.observations[torch.arange(100), C - 1 - batch.extras[ELAPSED][:, C - 1]][~lost]
    q = made.policy.high.critic.q1_forward(kept, made.policy.high.actor(kept))
    expected = torch.autograd.grad(-q.sum() / 100, actor)
    for one, other, by_hand in zip(*found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)
        torch.testing.assert_close(one, by_hand, rtol=1e-4, atol=1e-6)


class Known(nn.Module):
    """Acts along the goal, as far as its gain says."""

    def __init__(self, gain: Tensor) -> None:
        super().__init__()
        self.gain = gain

    def forward(self, obs: Any, deterministic: bool = True) -> Tensor:
        return self.gain * obs[GOAL] + 0.01 * obs["here"][:, 2:]


def test_the_correction_is_the_most_likely_candidate_under_a_known_lower_level() -> None:
    made = model(7, 4)
    made.learn(80)
    policy, learner = made.policy, made.learner
    gain = torch.tensor([0.7, -0.4])
    policy.low.actor = Known(gain)
    batch = drawn(made, 64)
    places, valid = learner.interval(batch)
    torch.manual_seed(5)
    got = learner.higher(batch).actions * policy.goal_range
    torch.manual_seed(5)
    draws = torch.randn(64, hiro.SAMPLED, 2)
    chosen_kinds = set()
    for row in range(64):
        rows = [int(place) for place, there in zip(places[row], valid[row], strict=True) if there]
        start = batch.observations[row, rows[0], :2]
        reached = batch.next_observations[row, rows[-1], :2] - start
        around = [reached + 0.5 * policy.goal_range * draw for draw in draws[row]]
        candidates = [batch.extras[GOAL][row, rows[0]], reached, *around]
        candidates = [goal.clamp(-policy.goal_range, policy.goal_range) for goal in candidates]
        errors = []
        for candidate in candidates:
            goal, error = candidate, 0.0
            for number, place in enumerate(rows):
                if number:  # what is left of the goal after the step before
                    goal = hiro.goal_transition(
                        batch.observations[row, rows[number - 1], :2], goal, batch.observations[row, place, :2]
                    )
                action = gain * goal + 0.01 * batch.observations[row, place, 2]
                error += float((batch.actions[row, place] - action).square().sum())
            errors.append(error)
        best = int(np.argmin(errors))
        chosen_kinds.add(min(best, 2))
        torch.testing.assert_close(got[row], candidates[best], rtol=1e-5, atol=1e-5)
    assert len(chosen_kinds) > 1


def test_the_higher_level_learns_every_few_steps() -> None:
    made = model(level_delay=2, policy_delay=2, learning_rate=1e-2)
    made.learn(60)
    batch = drawn(made, 16)
    moved = []
    for _ in range(6):
        before = {name: tensor.clone() for name, tensor in made.policy.state_dict().items()}
        made.learner.update(batch)
        now = made.policy.state_dict()
        changed = {name for name in now if not torch.equal(now[name], before[name])}
        moved.append({".".join(name.split(".")[:2]) for name in changed})
    low, targets = {"low.critic"}, {"low.actor", "low.critic_target", "low.actor_target"}
    high, higher_targets = {"high.critic"}, {"high.actor", "high.critic_target", "high.actor_target"}
    all_low = low | targets
    assert moved == [low, all_low | high, low, all_low | high | higher_targets, low, all_low | high]


def test_both_levels_regress_on_td3s_targets() -> None:
    made = model(target_policy_noise=0.0)
    made.learn(60)
    batch, learner = drawn(made, 16), made.learner
    for level, rows in (("low", learner.lower(batch)), ("high", learner.higher(batch))):
        networks = getattr(made.policy, level)
        with torch.no_grad():
            q = networks.critic_target.q_values(rows.next_observations, networks.actor_target(rows.next_observations))
        expected = [float(r + d * min(a, b)) for r, d, a, b in zip(rows.rewards, rows.discounts, *q, strict=True)]
        torch.testing.assert_close(learner.td_target(rows, level), torch.tensor(expected))


# -- datasets ----------------------------------------------------------------------------------------------------------


def test_recorded_steps_have_the_goals_that_they_reached() -> None:
    recorded = collect(Drift(length=7), None, 25, seed=0)
    made = HIRO(
        "MlpPolicy", recorded, goal_steps=C, goal_entries=[0, 1], policy_kwargs={"net_arch": [8]}, device="cpu", seed=0
    )
    rows, extras = len(recorded), made.data_buffer.extras
    for t in range(rows):
        time = recorded.timesteps[t]
        first = t - time % C
        end = next(int(end) for end in recorded.ends if end > t)
        last = min(first + C, end) - 1
        here, reached = made.data_buffer.observations[t, 0, :2], made.data_buffer.next_observations[last, 0, :2]
        assert extras[ELAPSED][t, 0] == time % C
        np.testing.assert_allclose(extras[GOAL][t, 0], reached - here, rtol=0, atol=1e-6)
    made.learn(20)
    assert made.num_timesteps == 20


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"goal_entries": [0, 3]}, PolicyError, r"goal_entries=\[0, 3\] must be different numbers in \[0, 2\]"),
        ({"goal_entries": [1, 1]}, PolicyError, "must be different numbers"),
        ({"goal_entries": []}, PolicyError, "one at least"),
        ({"goal_entries": [0.5]}, HyperparameterError, "a list of whole numbers"),
        ({"goal_range": [1.0, 1.0, 1.0]}, PolicyError, "has 3 numbers, and goals have 2 entries"),
        ({"goal_range": [1.0, -1.0]}, HyperparameterError, "a list of positive numbers"),
        ({"goal_range": 0.0}, HyperparameterError, "a positive number"),
        ({"replay_buffer_kwargs": {"reduce": 1}}, HyperparameterError, "Leave it out"),
        ({"policy_kwargs": {"goal_steps": 4}}, HyperparameterError, "Give goal_steps as an argument"),
        ({"n_steps": 3}, TypeError, "n_steps"),
    ],
)
def test_what_it_cannot_do_is_refused(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        model(**options)
