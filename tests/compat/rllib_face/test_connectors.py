"""Connector pieces of a program's own: called in training and in evaluation, or refused with the reason."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from polyak.compat.rllib_face import (
    BCConfig,
    ConnectorV2,
    DQNConfig,
    EnvToModulePipeline,
    FlattenObservations,
    FrameStackingEnvToModule,
    FrameStackingLearner,
    MeanStdFilter,
    ModuleToEnvPipeline,
    PPOConfig,
    PrevActionsPrevRewards,
    SACConfig,
    SingleAgentEpisode,
    SingleAgentObservationPreprocessor,
)
from polyak.compat.rllib_face.connectors.environments import ConnectedEnv, layers_of
from polyak.compat.rllib_face.connectors.episodes import LOOKBACK
from polyak.compat.rllib_face.filters import filter_around
from polyak.distributed.statistics import moments_in
from polyak.envs import DummyVecEnv
from polyak.hyperparameters.declaration import HyperparameterError
from tests.worlds import World


class Steps(World):
    """Episodes that end after as many steps as their number and three, or are cut after six."""

    metadata: dict[str, Any] = {}

    def __init__(self, config: Any = None) -> None:
        images = (config or {}).get("images")
        self.observation_space = gym.spaces.Box(0, 100, *(((8, 8, 1), np.uint8) if images else ((2,), np.float32)))
        self.number = 0

    def begin(self) -> None:
        self.number += 1

    def look(self) -> np.ndarray:
        return np.full(self.observation_space.shape, self.t, self.observation_space.dtype)

    def act(self, action: Any) -> float:
        return float(self.t)

    def step(self, action: Any) -> Any:
        observation, reward, *_, info = super().step(action)
        return observation, reward, self.t == self.number + 3, self.t == 6, info

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0], {"number": self.number}


class Doubled(SingleAgentObservationPreprocessor):
    def preprocess(self, observation: Any, episode: Any) -> Any:
        return 2 * observation


def ppo(before: Any = None, behind: Any = None, **env_runners: Any) -> PPOConfig:
    config = PPOConfig().environment(Steps).env_runners(env_to_module_connector=before, **env_runners)
    config.training(train_batch_size_per_learner=16, minibatch_size=8, num_epochs=1, learner_connector=behind)
    return config.rl_module(model_config={"fcnet_hiddens": [4]}).debugging(seed=3)


# -- before the module -------------------------------------------------------------------------------------------------


def test_observations_are_those_of_the_pieces_and_final_ones_too() -> None:
    """Two environments whose episodes end at different steps, against the environments without pieces."""
    env = DummyVecEnv([Steps, Steps])
    plain = DummyVecEnv([Steps, Steps])
    pipeline = EnvToModulePipeline(env.observation_space, env.action_space, connectors=[Doubled()])
    connected = ConnectedEnv(env, pipeline)
    np.testing.assert_array_equal(connected.reset(), 2 * plain.reset())
    for step in range(20):
        actions = np.array([step % 2, 1])
        found, expected = connected.step(actions), plain.step(actions)
        np.testing.assert_array_equal(found[0], 2 * expected[0])
        np.testing.assert_array_equal(found[1:3], expected[1:3])
        for ours, theirs in zip(found[3], expected[3], strict=True):
            assert ours.keys() == theirs.keys()
            if "terminal_observation" in theirs:
                np.testing.assert_array_equal(ours["terminal_observation"], 2 * theirs["terminal_observation"])


def test_pieces_see_whole_episodes_with_what_was_done() -> None:
    seen: list[tuple[Any, ...]] = []

    class Seeing(ConnectorV2):
        def __call__(self, *, batch: Any, episodes: Any, **kwargs: Any) -> Any:
            for one in episodes:
                rows = [float(row[0]) for row in one.get_observations()]
                seen.append((rows, one.get_actions(), one.get_rewards(), one.is_terminated, one.is_truncated))
            return batch

    env = DummyVecEnv([Steps])
    connected = ConnectedEnv(env, EnvToModulePipeline(env.observation_space, env.action_space, connectors=[Seeing()]))
    connected.reset()
    for action in (0, 1, 1, 0, 0):
        connected.step(np.array([action]))
    assert seen[4] == ([0, 1, 2, 3, 4], [0, 1, 1, 0], [1, 2, 3, 4], True, False)
    assert seen[5] == ([0], [], [], False, False)
    assert seen[6] == ([0, 1], [0], [1], False, False)


def test_endless_episodes_do_not_grow_without_end() -> None:
    class Endless(Steps):
        def step(self, action: Any) -> Any:
            return *super().step(action)[:2], False, False, {}

    env = DummyVecEnv([Endless])
    connected = ConnectedEnv(env, EnvToModulePipeline(env.observation_space, env.action_space, connectors=[Doubled()]))
    connected.reset()
    for _ in range(2 * LOOKBACK + 5):
        connected.step(np.array([0]))
    (episode,) = connected.episodes
    assert len(episode) == LOOKBACK + 4
    assert episode.t == 2 * LOOKBACK + 5


@pytest.mark.parametrize("cls", [PPOConfig, DQNConfig])
def test_training_and_evaluation_pass_the_pieces(cls: Any) -> None:
    """And each has pieces of its own, of which those of evaluation continue from what training has learned."""
    made: list[Any] = []

    class Counting(Doubled):
        def __init__(self) -> None:
            super().__init__()
            self.calls: Counter[Any] = Counter()
            made.append(self)

        def __call__(self, **given: Any) -> Any:
            self.calls[given["explore"], given["rl_module"] is not None] += 1
            return super().__call__(**given)

        def get_state(self, *args: Any, **kwargs: Any) -> Any:
            return {"calls": list(self.calls.items())}

        def set_state(self, state: Any) -> None:
            self.calls = Counter(dict(state["calls"]))

    config = cls().environment(Steps).env_runners(env_to_module_connector=lambda env, spaces, device: Counting())
    config.evaluation(evaluation_duration=1, evaluation_config={"explore": False})
    if cls is PPOConfig:
        config.training(train_batch_size_per_learner=16, minibatch_size=8, num_epochs=1)
    else:
        config.training(num_steps_sampled_before_learning_starts=5).reporting(min_sample_timesteps_per_iteration=16)
    with config.build() as algo:
        algo.train()
        trained = dict(made[0].calls)
        assert set(trained) == {(True, True)}
        assert trained[True, True] > 16, "a reset, each step, and each new episode"
        algo.evaluate()
        assert made[0].calls == Counter(trained)
        assert len(made) == 2
        assert {**made[1].calls, (False, True): 0} == {**trained, (False, True): 0}
        assert made[1].calls[False, True] >= 5
        module = algo.get_module()
        episode = SingleAgentEpisode(observations=[np.array([3, 4], np.float32)])
        batch = algo.env_runner._env_to_module(episodes=[episode], rl_module=module, explore=False)
        np.testing.assert_array_equal(batch["obs"], [[6, 8]])
        assert len(module.forward_inference(batch)) > 0
        with pytest.raises(RuntimeError, match="SingleAgentEpisode"):
            algo.compute_single_action(np.zeros(2, np.float32))


def test_a_filter_stands_among_the_pieces() -> None:
    """It sees what those before it make, and those behind it see what it makes."""
    seen = []

    class Behind(SingleAgentObservationPreprocessor):
        def preprocess(self, observation: Any, episode: Any) -> Any:
            seen.append(observation)
            return observation + 100

        def recompute_output_observation_space(self, space: Any, actions: Any) -> Any:
            return gym.spaces.Box(-np.inf, np.inf, space.shape, np.float32)

    with ppo(lambda env, spaces, device: [Doubled(), MeanStdFilter(), Behind()]).build() as algo:
        algo.train()
        known = filter_around(algo.model.get_env())
        assert known is not None
        assert len(layers_of(algo.model.get_env())) == 2
        mean = moments_in(known)["obs_rms"]["mean"]
        steps = [0, 1, 2, 3, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 0, 1]  # the first observations of the episodes, 16 steps
        assert mean == pytest.approx(np.mean(2.0 * np.array(steps)), abs=1e-3)  # one of weight 1e-4 before them
        assert np.abs(seen).max() <= 10
        episode = SingleAgentEpisode(observations=[np.array([3, 3], np.float32)])
        (row,) = algo.env_runner._env_to_module(episodes=[episode], rl_module=None)["obs"]
        np.testing.assert_allclose(row, known.normalize_obs(np.full(2, 6.0)) + 100, rtol=1e-6)


def test_what_pieces_learn_is_in_checkpoints(tmp_path: Path) -> None:
    class Learning(ConnectorV2):
        calls = 0

        def __call__(self, *, batch: Any, **given: Any) -> Any:
            self.calls += 1
            return batch

        def get_state(self, *args: Any, **kwargs: Any) -> Any:
            return {"calls": self.calls}

        def set_state(self, state: Any) -> None:
            self.calls = state["calls"]

    config = ppo(lambda env, spaces, device: [Learning()], lambda observations, actions: [Learning()])
    with config.build() as algo:
        algo.train()
        algo.save_to_path(tmp_path)
        state = algo.get_state()
        before = algo.env_runner._env_to_module.connectors[0].calls
        assert before > 16
    for restore in (lambda one: one.restore_from_path(tmp_path), lambda one: one.set_state(state)):
        with config.build() as other:
            restore(other)
            (piece,) = other.env_runner._env_to_module.connectors
            assert piece.calls == before
            assert other.learner_group._learner._learner_connector.own[0].calls == 1


def test_what_no_file_can_hold_is_refused(tmp_path: Path) -> None:
    class Odd(Doubled):
        def get_state(self, *args: Any, **kwargs: Any) -> Any:
            return {"odd": object()}

    with ppo(lambda env, spaces, device: Odd()).build() as algo, pytest.raises(HyperparameterError, match="arrays"):
        algo.save_to_path(tmp_path)


def test_a_config_may_build_the_pieces_itself() -> None:
    class Own(PPOConfig):
        def build_env_to_module_connector(self, env: Any = None, spaces: Any = None, device: Any = None) -> Any:
            pipeline = super().build_env_to_module_connector(env, spaces, device)
            pipeline.prepend(Doubled())
            pipeline.append(FlattenObservations())
            pipeline.remove("FlattenObservations")
            pipeline.insert_after(Doubled, Doubled())
            return pipeline

    config = Own().environment(Steps)
    config.training(train_batch_size_per_learner=16, minibatch_size=8, num_epochs=1)
    with config.build() as algo:
        algo.train()
        assert float(algo.env_runner.env.episodes[0].get_observations(1)[0]) == 4


# -- behind the module -------------------------------------------------------------------------------------------------


class Acting(World):
    """Writes down what was done."""

    observation_space = gym.spaces.Box(0, 1, (1,), np.float32)
    length = 5

    def __init__(self, config: Any) -> None:
        self.action_space, self.note = config["space"], config["note"]

    def look(self) -> Any:
        return np.full(1, self.t / 5, np.float32)

    def act(self, action: Any) -> float:
        self.note(action)
        return 1.0


BOX = gym.spaces.Box(-3, 1, (1,), np.float32)


def acting(cls: Any, space: Any, pieces: Any, before: Any = None) -> tuple[Any, list[Any]]:
    """A config of two environments whose actions pass pieces, and what is done in them."""
    done: list[Any] = []
    config = cls().environment(
        Acting, env_config={"space": space, "note": lambda action: done.append(action)}, disable_env_checking=True
    )
    config.env_runners(num_envs_per_env_runner=2, module_to_env_connector=pieces, env_to_module_connector=before)
    config.evaluation(evaluation_duration=2, evaluation_config={"explore": False}).debugging(seed=3)
    if cls is PPOConfig:
        return config.training(train_batch_size_per_learner=16, minibatch_size=8, num_epochs=1), done
    return config.training(num_steps_sampled_before_learning_starts=0).reporting(
        min_sample_timesteps_per_iteration=16, min_time_s_per_iteration=0
    ), done


@pytest.mark.parametrize(
    ("cls", "space", "made", "executed"),
    [
        (PPOConfig, gym.spaces.Discrete(3), 2, 2),
        (PPOConfig, BOX, 0.25, -0.5),  # the module's bounds are -1 and 1
        (DQNConfig, gym.spaces.Discrete(3), 2, 2),
        (SACConfig, BOX, 0.25, -0.5),
    ],
)
def test_what_pieces_make_of_actions_is_stored_and_executed(cls: Any, space: Any, made: Any, executed: Any) -> None:
    """In training and in evaluation, with the columns and episodes that RLlib shows them."""
    seen: list[tuple[Any, ...]] = []

    class Fixed(ConnectorV2):
        def __call__(self, *, rl_module: Any, batch: Any, episodes: Any, explore: Any, **given: Any) -> Any:
            items = batch["actions"]
            assert set(items) == {(one.id_,) for one in episodes}
            seen.append((explore, sorted(batch), [len(one) for one in episodes]))
            self.foreach_batch_item_change_in_place(batch, "actions", lambda one, *_: np.full_like(one, made))
            assert type(rl_module) is type(algo.get_module())
            return batch

    config, done = acting(cls, space, lambda env, spaces: Fixed())
    stochastic = ["action_dist_inputs", "action_logp", "actions"]
    columns = stochastic if cls is PPOConfig else ["actions"]
    with config.build() as algo:
        algo.train()
        assert seen == [(True, columns, [step % 5] * 2) for step in range(8)]
        np.testing.assert_allclose(np.ravel(done), np.full(16, executed), rtol=1e-6)
        model = algo.model
        stored = model.rollout_buffer.actions if cls is PPOConfig else model.replay_buffer.actions[:8]
        np.testing.assert_array_equal(np.ravel(stored), np.full(16, made, stored.dtype))
        seen.clear()
        done.clear()
        algo.evaluate()
        assert seen == [(False, columns, [step] * 2) for step in range(5)]
        np.testing.assert_allclose(np.ravel(done), np.full(10, executed), rtol=1e-6)


def test_pieces_around_the_module_share_episodes_and_what_they_leave_to_each_other(tmp_path: Path) -> None:
    class Before(ConnectorV2):
        def __call__(self, *, batch: Any, episodes: Any, shared_data: Any, **given: Any) -> Any:
            shared_data["seen"] = {one.id_: len(one) for one in episodes}
            return batch

    class Behind(ConnectorV2):
        calls = 0

        def __call__(self, *, batch: Any, episodes: Any, shared_data: Any, **given: Any) -> Any:
            self.calls += 1
            assert {one.id_: len(one) for one in episodes}.items() <= shared_data["seen"].items()
            return batch

        def get_state(self, *args: Any, **kwargs: Any) -> Any:
            return {"calls": self.calls}

        def set_state(self, state: Any) -> None:
            self.calls = state["calls"]

    discrete = gym.spaces.Discrete(3)
    config, done = acting(PPOConfig, discrete, lambda env, spaces: [Behind()], lambda env, spaces, device: Before())
    plain, done_without = acting(PPOConfig, discrete, None)
    with plain.build() as algo:
        algo.train()
    with config.build() as algo:
        algo.train()
        assert done == done_without, "pieces that change nothing"
        (piece,) = algo.env_runner._module_to_env.connectors
        assert isinstance(algo.env_runner._module_to_env, ModuleToEnvPipeline)
        assert piece.calls == 8
        algo.save_to_path(tmp_path)
    with config.build() as again:
        again.restore_from_path(tmp_path)
        assert again.env_runner._module_to_env.connectors[0].calls == 8
        again.train()
        assert again.env_runner._module_to_env.connectors[0].calls == 16


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda batch, key: batch["action_logp"].update({key: [np.float32(-1)]}), "action_logp.*leave the others"),
        (lambda batch, key: batch.update(own=batch["actions"]), r"\['own'\].*leave the others"),
        (lambda batch, key: batch.pop("action_dist_inputs"), "action_dist_inputs.*leave the others"),
        (lambda batch, key: batch["actions"].pop(key), "one item of this column for each episode"),
        (lambda batch, key: batch["actions"].update({key: [3]}), r"=3 .*Discrete\(3\)"),
        (lambda batch, key: batch["actions"].update({key: [1.0]}), r"float64 \(\).*int"),
    ],
)
def test_what_actions_cannot_become_is_refused(change: Any, reason: str) -> None:
    class Changing(ConnectorV2):
        def __call__(self, *, batch: Any, episodes: Any, **given: Any) -> Any:
            change(batch, (episodes[0].id_,))
            return batch

    config, _ = acting(PPOConfig, gym.spaces.Discrete(3), lambda env, spaces: Changing())
    with config.build() as algo, pytest.raises(HyperparameterError, match=f"(?s)module_to_env_connector.*{reason}"):
        algo.train()


# -- RLlib's own pieces ------------------------------------------------------------------------------------------------


def test_frames_are_stacked_as_channels() -> None:
    before = lambda env, spaces, device: FrameStackingEnvToModule(num_frames=3)  # noqa: E731
    config = ppo(before, lambda observations, actions: FrameStackingLearner(num_frames=3))
    config.environment(Steps, env_config={"images": True})
    config.rl_module(model_config={"conv_filters": [[4, 4, 4]], "fcnet_hiddens": [4]})
    with config.build() as algo:
        env = algo.env_runner.env
        assert env.observation_space.shape == (8, 8, 3)
        assert env.observation_space.dtype == np.uint8
        env.reset()
        for _ in range(2):
            observations = env.step(np.array([0]))[0]
        np.testing.assert_array_equal(observations[0, 0, 0], [0, 1, 2])
        algo.train()


@pytest.mark.parametrize(
    "space", [gym.spaces.Discrete(3), gym.spaces.Box(-1, 1, (2,)), gym.spaces.MultiDiscrete([2, 3])]
)
def test_what_was_done_before_is_observed(space: Any) -> None:
    class Acting(Steps):
        def __init__(self, config: Any = None) -> None:
            super().__init__(config)
            self.action_space = space

    pieces = lambda env, spaces, device: [PrevActionsPrevRewards(n_prev_rewards=2), FlattenObservations()]  # noqa: E731
    with ppo(pieces).environment(Acting).build() as algo:
        env = algo.env_runner.env
        env.reset()
        action = np.asarray(space.sample())
        (row,) = env.step(action[None])[0]
        encoded = gym.spaces.flatten(space, action)
        np.testing.assert_allclose(row, np.concatenate([[1, 1], encoded, [0, 1]]), rtol=1e-6)
        algo.train()


class Nested(Steps):
    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        pair = gym.spaces.Tuple([gym.spaces.Discrete(9), gym.spaces.Box(0, 9, (2,), np.float32)])
        self.observation_space = gym.spaces.Dict({"b": gym.spaces.Box(0, 9, (1,), np.float32), "a": pair})

    def look(self) -> Any:
        row = np.array([self.t, 1], np.float32)
        return {"b": row[:1], "a": (self.t, row)}


def test_nested_observations_pass_whole() -> None:
    """Pieces see them as the environment has them; the module, without pieces that flatten, their parts by name."""
    seen = []

    class Seeing(SingleAgentObservationPreprocessor):
        def preprocess(self, observation: Any, episode: Any) -> Any:
            seen.append((int(observation["a"][0]), observation["b"].tolist()))
            return observation

    with ppo(lambda env, spaces, device: [Seeing(), FlattenObservations()]).environment(Nested).build() as algo:
        algo.train()
        env = algo.env_runner.env
        env.reset()
        (row,) = env.step(np.array([0]))[0]
        np.testing.assert_array_equal(row, [*np.eye(9)[1], 1, 1, 1])
        assert {step for step, _ in seen} == set(range(7))
        assert all([float(step)] == rest for step, rest in seen)
    with ppo(lambda env, spaces, device: PrevActionsPrevRewards()).environment(Nested).build() as algo:
        algo.train()
        assert "_orig_obs/a/1" in algo.env_runner.env.observation_space.spaces


def test_parts_are_left_out() -> None:
    space = gym.spaces.Dict({"b": gym.spaces.Discrete(2), "a": gym.spaces.Box(0, 1, (1, 2)), "c": gym.spaces.Box(0, 1)})
    piece = FlattenObservations(space, gym.spaces.Discrete(2), keys_to_remove=["c"])
    assert piece.observation_space.shape == (4,)
    observation = {"a": np.array([[5.0, 6.0]]), "b": 1, "c": np.array([7.0])}
    np.testing.assert_array_equal(piece.preprocess(observation, None), [5, 6, 0, 1])
    with pytest.raises(HyperparameterError, match="keys_to_remove"):
        FlattenObservations(space, None, keys_to_remove=["d"])


def test_columns_are_changed_in_place() -> None:
    batch: dict[str, Any] = {}
    episode = SingleAgentEpisode("one", observations=[1.0])
    ConnectorV2.add_n_batch_items(batch, "x", np.array([[1], [2]]), 2, episode)
    ConnectorV2.add_batch_item(batch, "y", 5, episode)
    ConnectorV2.add_batch_item(batch, "y", 6, episode)
    change = lambda items, name, *_: (items[0] + 1, name)  # noqa: E731
    ConnectorV2.foreach_batch_item_change_in_place(batch, ["x", "y"], change)
    assert batch == {"x": {("one",): [2, 3]}, "y": {("one",): ["one", "one"]}}
    with pytest.raises(HyperparameterError, match="column"):
        ConnectorV2.foreach_batch_item_change_in_place(batch, "z", change)
    (pair,) = ConnectorV2.single_agent_episode_iterator([episode], zip_with_batch_column=batch["x"])
    assert pair == (episode, [2, 3])


# -- before the learner ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("environments", [1, 2])
def test_the_learner_gets_the_rewards_of_the_pieces(environments: int) -> None:
    """Rewards are what the pieces wrote, step by step, over two rollouts that cut episodes; returns count others."""
    lengths = []

    class Thousand(ConnectorV2):
        def __call__(self, *, rl_module: Any, batch: Any, episodes: Any, **kwargs: Any) -> Any:
            assert list(rl_module) == ["default_policy"]
            for one in episodes:
                lengths.append(len(one))
                assert len(one.get_observations()) == len(one.get_rewards()) + 1
                led_to, rewards = one.get_observations(slice(1, None))[:-1, 0], one.get_rewards()[:-1]
                assert led_to.tolist() == (2 * rewards).tolist()  # but for the last step, which RLlib adds
                one.set_rewards(new_data=1000 + one.get_rewards())
            return batch

    config = ppo(lambda env, spaces, device: Doubled(), lambda observations, actions: Thousand())
    config.env_runners(num_envs_per_env_runner=environments).training(train_batch_size_per_learner=16 * environments)
    behind = config.learner_connector
    with config.training(learner_connector=None).learners(learner_connector=behind).build() as algo:
        rewards = []
        for _ in range(2):
            result = algo.train()
            kept = algo.model.rollout_buffer.rewards  # which passes over it have laid out by environment
            rewards.append(kept.reshape(environments, 16).T.copy())
        steps = [*range(1, 5), *range(1, 6), *range(1, 7), *range(1, 7), *range(1, 7), *range(1, 7)][:32]
        expected = np.repeat(1000 + np.array(steps, np.float32)[:, None], environments, 1)
        np.testing.assert_array_equal(np.concatenate(rewards), expected)
        assert lengths == [5, 6, 7, 2] * environments + [6, 7, 6] * environments
        assert result["env_runners"]["episode_return_max"] == 21


def test_a_column_that_a_learners_piece_adds_has_a_row_for_each_step() -> None:
    class Adding(ConnectorV2):
        def __init__(self, rows: int | None = None) -> None:
            super().__init__()
            self.rows = rows

        def __call__(self, *, batch: Any, episodes: Any, **kwargs: Any) -> Any:
            return {**batch, "mine": [1] * (self.rows or sum(map(len, episodes)))}

    with ppo(None, lambda observations, actions: Adding()).build() as algo:
        algo.train()
    with (
        ppo(None, lambda observations, actions: Adding(3)).build() as algo,
        pytest.raises(HyperparameterError, match=r"'mine'\] must have \d+ rows"),
    ):
        algo.train()
    with (
        ppo(lambda env, spaces, device: Adding()).build() as algo,
        pytest.raises(NotImplementedError, match=r"\['mine'\], which no module"),
    ):
        algo.train()


# -- what is refused ---------------------------------------------------------------------------------------------------


def piece(*_: Any) -> Any:
    return Doubled()


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (lambda: ppo(piece, num_env_runners=1), "set num_env_runners=0"),
        (lambda: ppo(piece).evaluation(evaluation_num_env_runners=1), "set evaluation_num_env_runners=0"),
        (lambda: ppo(module_to_env_connector=piece, num_env_runners=1), "set num_env_runners=0.*ActionWrapper"),
        (lambda: ppo(module_to_env_connector=Doubled()), "give a function"),
        (lambda: ppo(module_to_env_connector=lambda *_: MeanStdFilter()), "filters stand in env_to_module_connector"),
        (lambda: ppo(module_to_env_connector=piece).rl_module(model_config={"use_lstm": True}), "Leave use_lstm out"),
        (lambda: ppo(None, piece).learners(num_learners=1), "set num_learners=0"),
        (lambda: SACConfig().environment("Pendulum-v1").training(learner_connector=piece), "SAC passes no pieces"),
        (lambda: ppo(Doubled()), "give a function"),
        (lambda: ppo(lambda env, spaces, device: 3), "give a function that returns a ConnectorV2"),
        (lambda: ppo(piece, lambda *_: MeanStdFilter()), "filters stand in env_to_module_connector"),
        (lambda: ppo(lambda *_: [MeanStdFilter(), MeanStdFilter()]), "one filter is enough"),
        (lambda: ppo(lambda *_: [MeanStdFilter(rewards=True)], piece), r"MeanStdFilter\(rewards=False\)"),
        (lambda: ppo(None, lambda *_: FrameStackingLearner(num_frames=2)), "put an equal piece into"),
        (lambda: ppo(lambda *_: FlattenObservations(as_learner_connector=True)), "leave as_learner_connector out"),
        (lambda: ppo(lambda *_: FrameStackingEnvToModule(num_frames=2)), r"\[height, width, 1\]"),
    ],
)
def test_what_nothing_would_call_is_refused(config: Any, reason: str) -> None:
    with pytest.raises(HyperparameterError, match=reason):
        config().build()


def test_other_observations_than_those_of_the_space_are_refused() -> None:
    class Wrong(SingleAgentObservationPreprocessor):
        def preprocess(self, observation: Any, episode: Any) -> Any:
            return observation[:1]

    with (
        ppo(lambda *_: Wrong()).build() as algo,
        pytest.raises(HyperparameterError, match="recompute_output_observation_space"),
    ):
        algo.train()


def test_pieces_of_recorded_data_are_refused() -> None:
    for name in ("env_to_module_connector", "module_to_env_connector", "learner_connector"):
        with pytest.raises(HyperparameterError, match="passes no connector"):
            BCConfig().update_from_dict({name: piece})
    episode = SingleAgentEpisode(observations=[1.0, 2.0], actions=[0], rewards=[1.0])
    with pytest.raises(NotImplementedError, match="set_observations"):
        episode.set_rewards(new_data=2.0, at_indices=0)
    episode.is_numpy = True
    with pytest.raises(NotImplementedError, match="set_rewards"):
        episode.set_observations(new_data=2.0, at_indices=0)
    with pytest.raises(NotImplementedError, match="set_actions"):
        episode.set_actions(new_data=1, at_indices=0)
