"""Which actions are taken, which steps are kept, and in which order and with which values they are learned from."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from polyak.compat.rllib_face import APPOConfig, DQNConfig, IMPALAConfig, PPOConfig, SACConfig
from polyak.hyperparameters.declaration import HyperparameterError
from tests.compat.rllib_face.fake_ray import FakeRay
from tests.pairs import one_of_each

LENGTHS = [3, 5, 4, 6]
"""Of successive episodes of :class:`Recorded`."""


class Recorded(gym.Env[np.ndarray, Any]):
    """Observations [10 * episode + step, of which environment]; rewards of 1; what was done is kept."""

    def __init__(self, context: Any) -> None:
        self.observation_space = gym.spaces.Box(-100, 1000, (2,), np.float32)
        continuous = context.get("continuous", False)
        self.action_space = gym.spaces.Box(-1, 1, (1,)) if continuous else gym.spaces.Discrete(5)
        self.truncates, self.lengths = context.get("truncates", False), context.get("lengths")
        self.episode, self.t, self.index = -1, 0, context.vector_index
        self.done: list[tuple[np.ndarray, Any]] = []

    def _seen(self) -> np.ndarray:
        return np.array([10 * self.episode + self.t, self.index], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.episode, self.t = self.episode + 1, 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.done.append((self._seen(), action))
        self.t += 1
        length = self.lengths[self.index] if self.lengths else LENGTHS[(self.episode + self.index) % 4]
        ended = self.t >= length
        return self._seen(), 1.0, ended and not self.truncates, ended and self.truncates, {}


def config(cls: Any = PPOConfig, envs: int = 1, runners: int = 0, **training: Any) -> Any:
    made = cls().environment(Recorded, env_config={"continuous": cls is SACConfig}).debugging(seed=1)
    made.env_runners(num_env_runners=runners, num_envs_per_env_runner=envs).learners(num_learners=0)
    made.framework(torch_compile_learner=False)
    made.reporting(min_time_s_per_iteration=None, min_sample_timesteps_per_iteration=40)
    made.rl_module(model_config={"fcnet_hiddens": [8], "head_fcnet_hiddens": [8], "fcnet_activation": "relu"})
    if cls in (DQNConfig, SACConfig):
        return made.training(train_batch_size_per_learner=8, num_steps_sampled_before_learning_starts=20, **training)
    made.training(train_batch_size_per_learner=40, **training).reporting(min_sample_timesteps_per_iteration=0)
    return made.training(minibatch_size=20, num_epochs=2) if cls is PPOConfig else made


def actions_of(env: Any) -> list[tuple[np.ndarray, Any]]:
    return [each for one in env.unwrapped.envs for each in one.unwrapped.done]


# -- explore -----------------------------------------------------------------------------------------------------------

FACES = [PPOConfig, IMPALAConfig, APPOConfig, DQNConfig, SACConfig]


@pytest.mark.parametrize("cls", one_of_each(FACES, PPOConfig, DQNConfig, SACConfig))
def test_without_exploration_the_best_actions_are_taken(cls: Any) -> None:
    """With learning rates of 0, so that the policy is the one that acted."""
    rates = {"lr": 0.0} if cls is not SACConfig else dict.fromkeys(("actor_lr", "critic_lr", "alpha_lr"), 0.0)
    for explore in (False, True):
        with config(cls, envs=2, **rates).env_runners(explore=explore).build_algo() as algo:
            algo.train()
            done = actions_of(algo.model.get_env())
            best = [algo.compute_single_action(seen) for seen, _ in done]
        same = np.array([np.allclose(one, action, atol=1e-5) for one, (_, action) in zip(best, done, strict=True)])
        assert len(done) >= 40
        assert same.all() == (not explore)


@pytest.mark.parametrize("cls", [PPOConfig, DQNConfig])
def test_runners_elsewhere_do_not_explore_either(fake: FakeRay, cls: Any) -> None:
    made = config(cls, envs=2, runners=1).env_runners(explore=False, rollout_fragment_length=20)
    made.training(lr=0.0)
    with made.build_algo() as algo:
        algo.train()
        done = actions_of(fake.actors[0].made.env)
        assert len(done) >= 40
        best = [algo.compute_single_action(seen) for seen, _ in done]
    assert best == [action for _, action in done]


@pytest.mark.parametrize("cls", [DQNConfig, SACConfig])
def test_actions_before_learning_starts_are_explored_as_later(cls: Any) -> None:
    """RLlib draws none uniformly: DQN's are the best but for ``epsilon``, SAC's are drawn by the policy."""
    made = config(cls, **({"epsilon": 0.0} if cls is DQNConfig else {}))
    made.training(num_steps_sampled_before_learning_starts=1000)
    with made.build_algo() as algo:
        algo.train()
        assert set(algo.model.runner.actor.exploration) == ({"epsilon_greedy"} if cls is DQNConfig else set())
        if cls is DQNConfig:
            assert all(algo.compute_single_action(seen) == action for seen, action in actions_of(algo.model.get_env()))


@pytest.mark.parametrize("cls", [PPOConfig, DQNConfig, SACConfig])
def test_one_runner_elsewhere_makes_the_numbers_of_this_process(fake: FakeRay, cls: Any) -> None:
    """Also while the probability of random actions moves from step to step of a fragment."""
    found = []
    for runners in (0, 1):
        made = config(cls, envs=2, runners=runners)
        if cls is not PPOConfig:
            made.env_runners(rollout_fragment_length=4)
        if cls is DQNConfig:
            made.training(epsilon=[[0, 1.0], [60, 0.0]])
        with made.build_algo() as algo:
            for _ in range(2):
                algo.train()
            found.append(algo.get_weights()["default_policy"])
    for name, ours in found[0].items():
        np.testing.assert_array_equal(ours, found[1][name])


@pytest.mark.parametrize("cls", [DQNConfig, IMPALAConfig])
def test_what_runners_make_meanwhile_is_not_what_a_restored_algorithm_has_asked_for(
    fake: FakeRay, cls: Any, tmp_path: Path
) -> None:
    """Without a seed they are always ahead."""
    with config(cls, envs=2, runners=2).debugging(seed=None).build_algo() as algo:
        before = algo.train()["num_env_steps_sampled_lifetime"]
        algo.save_to_path(tmp_path)
        algo.restore_from_path(tmp_path)
        found = [algo.train()["num_env_steps_sampled_lifetime"] for _ in range(2)]
    assert found[0] - before == found[1] - found[0] > 0


# -- which rows minibatches are made of --------------------------------------------------------------------------------


def batches_of(algo: Any) -> list[Any]:
    """The minibatches of one iteration."""
    found, learner = [], algo.model.learner
    step = learner.gradient_step
    learner.gradient_step = lambda batch: found.append(batch) or step(batch)
    algo.train()
    return found


def in_order(envs: int, steps: int) -> list[list[float]]:
    """Observations in RLlib's order: episodes as they ended, then those that continue, environment by environment."""
    ended, cut = [], []
    for env in range(envs):
        t = episode = 0
        while t < steps:
            length = LENGTHS[(episode + env) % 4]
            rows = [[10.0 * episode + i, float(env)] for i in range(min(length, steps - t))]
            t, episode = t + length, episode + 1
            (ended if t <= steps else cut).append((t, env, rows))
    return [row for _, _, rows in [*sorted(ended), *cut] for row in rows]


@pytest.mark.parametrize("steps", [20, 18], ids=["cut", "ended"])
def test_minibatches_in_order_reach_into_the_next_pass(steps: int) -> None:
    """Of 2 environments, of which the first ends an episode with step 18."""
    made = config(envs=2, shuffle_batch_per_epoch=False).training(train_batch_size_per_learner=2 * steps)
    with made.training(minibatch_size=12).build_algo() as algo:
        for number in range(2):  # of the second rollout episodes begin where those of the first were cut
            found = batches_of(algo)
            assert [len(batch.actions) for batch in found] == [12] * -(-2 * 2 * steps // 12)
            assert algo._counters["rows"] == 12 * len(found) * (number + 1)
            seen = np.concatenate([batch.observations.numpy() for batch in found]).tolist()
            order = in_order(2, steps) if number == 0 else seen[: 2 * steps]
            assert seen == (order * 3)[: len(seen)]
            assert len({tuple(row) for row in order}) == 2 * steps


@pytest.mark.parametrize(
    ("change", "warns"),
    [({}, True), ({"shuffle_batch_per_epoch": False}, False), ({"batch_mode": "complete_episodes"}, False)],
)
def test_only_passes_that_leave_a_smaller_minibatch_are_warned_of(change: dict[str, Any], warns: bool) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        config().training(minibatch_size=12).update_from_dict(change).build_algo().stop()
    assert any("not a factor" in str(one.message) for one in said) == warns


def test_rows_in_order_go_runner_by_runner_and_through_fragments(fake: FakeRay) -> None:
    made = config(envs=1, runners=2, shuffle_batch_per_epoch=False)
    with config(envs=2, shuffle_batch_per_epoch=False).build_algo() as algo:
        algo.model.rollout_buffer.envs_per_runner = 1
        seen = np.concatenate([batch.observations.numpy() for batch in batches_of(algo)])[:40]
    assert made.plain().kwargs["rollout_buffer_kwargs"] == {"envs_per_runner": 1}
    assert (np.diff(seen[:, 1]) >= 0).all()
    assert sorted(map(tuple, seen.tolist())) == sorted(map(tuple, in_order(2, 20)))
    with made.build_algo() as algo:
        algo.train()
        assert np.flatnonzero(algo.model.rollout_buffer.ends[:, 0]).tolist() == [2, 7, 11, 17]


# -- without a critic --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("truncates", [False, True])
def test_advantages_without_a_critic_are_discounted_returns(truncates: bool) -> None:
    """Of 20 steps, of which the last two begin an episode: nothing is added for what would have followed."""
    made = config(use_critic=False, lambda_=0.5, gamma=0.9).training(train_batch_size_per_learner=20)
    made.environment(env_config={"truncates": truncates})
    with made.build_algo() as algo:
        values = [p.clone() for p in algo.model.policy.get_submodule("value_net").parameters()]
        result = algo.train()["learners"]["default_policy"]
        moved = list(algo.model.policy.get_submodule("value_net").parameters())
        buffer = algo.model.rollout_buffer
    wanted = [sum(0.9**i for i in range(left)) for length in [3, 5, 4, 6, 2] for left in range(length, 0, -1)]
    np.testing.assert_allclose(buffer.advantages.reshape(-1), wanted, rtol=1e-6)
    assert not buffer.values.any()
    assert (result["vf_loss"], result["vf_loss_unclipped"], result["vf_explained_var"]) == (0, 0, 0)
    assert result["policy_loss"] != 0
    assert all((before == after).all() for before, after in zip(values, moved, strict=True))


# -- whole episodes ----------------------------------------------------------------------------------------------------


def whole(cls: Any = PPOConfig, envs: int = 1, runners: int = 0, **training: Any) -> Any:
    return config(cls, envs, runners, **training).env_runners(batch_mode="complete_episodes")


def rows_of_rounds(rounds: int, envs: int = 2) -> list[list[float]]:
    """Observations of the episodes that count: of 2 environments each second one, as those after them are dropped."""
    found = []
    for number in range(rounds):
        episode = number * envs
        played = sorted((LENGTHS[(episode + env) % 4], env) for env in range(envs))
        found += [[10.0 * episode + t, float(env)] for length, env in played for t in range(length)]
    return found


def replayed(algo: Any) -> list[list[float]]:
    buffer = algo.model.replay_buffer
    return buffer.observations[: buffer.size()].reshape(-1, 2).tolist()


@pytest.mark.parametrize("cls", FACES)
def test_steps_episodes_and_updates_are_as_many_as_in_rllib(cls: Any) -> None:
    """As ``tests/compat/rllib_face/recorded/settings_of_collecting.json`` says of PPO and DQN."""
    made = whole(cls).training(train_batch_size_per_learner=20).reporting(min_sample_timesteps_per_iteration=20)
    if replays := cls in (DQNConfig, SACConfig):
        made.training(num_steps_sampled_before_learning_starts=10)
    with made.build_algo() as algo:
        found = [algo.train()["env_runners"] for _ in range(2)]
        assert [one["num_env_steps_sampled"] for one in found] == [21, 23]
        assert [one["num_episodes"] for one in found] == [5, 5]
        assert not replays or algo.model.learner.steps == 8


def test_a_rollout_of_several_environments_is_made_of_the_episodes_that_ended_first() -> None:
    with whole(envs=2).build_algo() as algo:
        for number in range(2):  # of 44 steps each, of which 8 are dropped
            assert algo.train()["env_runners"]["num_env_steps_sampled"] == 44
            buffer = algo.model.rollout_buffer
            assert buffer.observations.tolist() == rows_of_rounds(8)[36 * number : 36 * (number + 1)]
            assert buffer.episode_starts.reshape(-1).nonzero()[0].tolist() == [0, 3, 8, 12, 18, 21, 26, 30]


def test_no_more_episodes_count_than_there_are_environments() -> None:
    """Of 3 and of 6 steps: two of the first have ended when the first of the second does."""
    made = whole(envs=2).environment(env_config={"lengths": [3, 6]})
    with made.build_algo() as algo:
        algo.train()
        assert set(algo.model.rollout_buffer.observations[:, 1].tolist()) == {0.0}


@pytest.mark.parametrize("cls", [DQNConfig, SACConfig])
def test_only_whole_episodes_are_replayed_with_a_gradient_step_for_each_round(cls: Any) -> None:
    made = whole(cls, envs=2).training(num_steps_sampled_before_learning_starts=0)
    with made.build_algo() as algo:
        assert algo.train()["env_runners"]["num_env_steps_sampled"] == 44
        assert replayed(algo) == rows_of_rounds(4)
        assert algo.model.learner.steps == 4
    with made.training(training_intensity=1.0).build_algo() as algo:  # RLlib counts a fragment as 2 steps, a batch as 8
        algo.train()
        assert (algo.model.replay.rounds, algo.model.learner.steps) == (4, 1)


def test_n_step_returns_of_whole_episodes_end_with_them() -> None:
    made = whole(DQNConfig, envs=2, n_step=3, gamma=1.0)
    with made.build_algo() as algo:
        algo.train()
        batch = algo.model.replay_buffer.sample(200)
    lengths = {(row[0] // 10, row[1]): 0 for row in rows_of_rounds(4)}
    for row in rows_of_rounds(4):
        lengths[row[0] // 10, row[1]] += 1
    left = [lengths[float(o[0] // 10), float(o[1])] - float(o[0]) % 10 for o in batch.observations]
    assert batch.rewards.flatten().tolist() == [min(3.0, each) for each in left]


@pytest.mark.parametrize("truncates", [False, True])
def test_values_of_whole_episodes(truncates: bool) -> None:
    """Nothing follows their last steps but what a truncated one was cut from."""
    made = whole(envs=2, lr=0.0, gamma=0.9, lambda_=1.0).environment(env_config={"truncates": truncates})
    with made.build_algo() as algo:
        algo.train()
        buffer, policy = algo.model.rollout_buffer, algo.model.policy
        wanted, rows = [], buffer.observations
        for row, after in zip(rows, [*rows[1:], None], strict=True):
            ends = after is None or after[1] != row[1] or after[0] != row[0] + 1
            wanted.append((row + np.array([1, 0], np.float32), ends))
        returns, following = [], 0.0
        for final, ends in reversed(wanted):
            if ends:
                value = policy.predict_values(policy.obs_to_tensor(final)[0]).item()
                following = value if truncates else 0.0
            following = 1 + 0.9 * following
            returns.insert(0, following)
    np.testing.assert_allclose(buffer.returns.reshape(-1), returns, rtol=1e-5)


def test_without_minibatches_all_rows_of_whole_episodes_make_a_step() -> None:
    with whole().training(minibatch_size=None).build_algo() as algo:
        assert [len(batch.actions) for batch in batches_of(algo)] == [44, 44]


def test_callbacks_see_whole_episodes_end_and_no_others() -> None:
    ended: list[int] = []
    made = whole(envs=2).callbacks(on_episode_end=lambda *, episode, **known: ended.append(len(episode.get_rewards())))
    made.callbacks(on_episode_step=lambda **known: None)
    with made.build_algo() as algo:
        algo.train()
    assert ended == [3, 5, 4, 6] * 2


def test_training_continues_from_a_checkpoint(tmp_path: Any) -> None:
    made = whole(envs=2)
    with made.build_algo() as algo:
        algo.train()
        path = algo.save_to_path(tmp_path)
        with type(algo).from_checkpoint(path, made) as again:
            assert again.train()["env_runners"]["num_env_steps_sampled_lifetime"] == 88


@pytest.mark.parametrize(("cls", "learners"), [(cls, number % 2) for number, cls in enumerate(FACES)])
def test_runners_play_rounds_until_together_they_have_enough(fake: FakeRay, cls: Any, learners: int) -> None:
    """2 runners with 2 environments: two rounds each bring 44 steps, 36 of which count."""
    made = whole(cls, envs=2, runners=2).learners(num_learners=learners)
    with made.build_algo() as algo:
        assert algo.train()["env_runners"]["num_env_steps_sampled"] == 44
        first, second = rows_of_rounds(2)[:8], rows_of_rounds(2)[8:]
        rows = [*first, *first, *second, *second]
        if cls in (DQNConfig, SACConfig):
            assert replayed(algo) == rows
        else:
            assert algo.model.rollout_buffer.observations.reshape(-1, 2)[:, 0].tolist() == [row[0] for row in rows]
        assert algo.model.learner.steps > 0


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: whole().rl_module(model_config={"use_lstm": True}), "batch_mode.*Leave use_lstm out"),
        (lambda: whole(learner_connector=lambda *spaces: []), "learner_connector"),
        (lambda: whole(IMPALAConfig).learners(num_learners=2), "num_learners=2"),
        (lambda: whole(DQNConfig, replay_buffer_config={"num_replay_buffer_shards": 1}), "num_replay_buffer_shards"),
    ],
)
def test_what_needs_equal_lengths_is_refused(made: Any, words: str) -> None:
    with pytest.raises(HyperparameterError, match=words):
        made().validate()
