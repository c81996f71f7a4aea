"""Algorithms that learn from recorded data, and evaluate in an environment if there is one."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from polyak.compat.rllib_face import results
from polyak.compat.rllib_face.algorithm import Algorithm
from polyak.compat.rllib_face.config.offline import OfflineConfig, own_names
from polyak.compat.rllib_face.environments import Spaces, in_units_of, limited, make_environments, scaled_space
from polyak.compat.rllib_face.evaluation import LocalEvaluators
from polyak.compat.rllib_face.foreign_envs import is_atari
from polyak.compat.rllib_face.groups import LocalRunner
from polyak.envs.spaces import clipped, is_image_space, is_image_space_channels_first, wide_bounds
from polyak.experience import Dataset
from polyak.experience.datasets.episodes import DatasetError
from polyak.experience.datasets.formats import rllib
from polyak.experience.datasets.formats.source import Source
from polyak.hyperparameters.declaration import require
from polyak.loops.training import engine_checks


class OfflineAlgorithm(Algorithm):
    """The algorithm that a config of recorded data builds.

    Attributes:
        dataset: the data to learn from, with actions in the module's units.

    Raises:
        DatasetError: the data cannot be learned from, or do not fit the environment.
    """

    config: OfflineConfig

    def _make_model(self) -> None:
        config = self.config
        self._seen, data = read(config, self._spaces_said())
        self.dataset, self._turned = data, self._seen.turned
        self._spaces = self._seen.observations, self._seen.own_actions
        self._steps = config.gradient_steps(len(data))
        self.plain = config.watched(config.plain(self._turned))
        if config.get("bc_logstd_coeff"):
            self._spread_over_actions()
        self._continue_with(self.plain.algorithm(self.plain.policy, data, **self.plain.kwargs))
        if (path := config.get_rl_module_spec().load_state_path) is not None:
            self._begin_with(path)
        self._counters = results.COUNTERS.copy()

    def _make_runners(self, model: Any, shown: Any, restart: bool) -> OfflineRunner:
        return OfflineRunner(model, self._steps, self.config.moves, restart, self.env_runner)

    def _spaces_said(self) -> tuple[Any, Any]:
        """Returns the spaces of the environment or the config; ``None`` if only the data have them."""
        config = self.config.evaluation_settings()
        said = self.config.observation_space, self.config.action_space
        if None not in said or config.env is None:
            return said
        if isinstance(self._evaluators, LocalEvaluators):
            found = Spaces.of(self._evaluators.env)
        else:
            env = make_environments(config, training=False)
            found = Spaces.of(env)
            env.close()
        return found.observations, found.own_actions

    def _spread_over_actions(self) -> None:
        """``bc_logstd_coeff`` weighs the mean log standard deviation of a row, and the entropy is their sum."""
        space, weight = self._seen.own_actions, self.plain.kwargs["ent_coef"]
        fix = f"actions of {space} have no standard deviation. Leave it out."
        require(isinstance(space, spaces.Box), "bc_logstd_coeff", weight, fix)
        self.plain.kwargs["ent_coef"] = weight / int(np.prod(space.shape or ()))

    def _of_learners(self, rows: int, updates: int, seconds: float) -> dict[str, Any]:
        found = super()._of_learners(rows, updates, seconds)
        count = "dataset_num_iters_trained"
        found["__all_modules__"] |= {count: updates, f"{count}_lifetime": self.model.learner.steps}
        return found

    @property
    def _sampled(self) -> int:
        return int(self.model.num_timesteps * self.model.batch_size)

    @property
    def _source(self) -> Dataset:
        return self.dataset


# -- data --------------------------------------------------------------------------------------------------------------


def read(config: OfflineConfig, said: tuple[Any, Any]) -> tuple[Spaces, Dataset]:
    """Reads the data of a config, in the module's units, and returns them with their spaces.

    Args:
        config: the algorithm's config.
        said: observation and action space of the environment; ``None``: those of the data.

    Raises:
        DatasetError: the data cannot be learned from.
        FileNotFoundError: there is no such file.
    """
    data = _together(config, said)
    observations = data.observation_space if said[0] is None else said[0]
    own = data.action_space if said[1] is None else said[1]
    atari = config.is_atari if config.is_atari is not None else is_atari(str(config.env))
    rewards = limited(data.rewards, atari if config.clip_rewards is None else config.clip_rewards)
    actions, space = _in_units(config, data.actions, own)
    turned = is_image_space(observations) and not is_image_space_channels_first(observations)
    parts = data.parts._replace(actions=actions, rewards=np.asarray(rewards))
    found = Dataset.from_parts(parts, observations, space, data.env_id)
    return Spaces(observations, space, own, turned), found


def _in_units(config: OfflineConfig, actions: np.ndarray, own: spaces.Space) -> tuple[np.ndarray, spaces.Space]:
    """Recorded actions [N, ...] as the module has them, and their space."""
    if not isinstance(own, spaces.Box):
        return actions, own
    space = scaled_space(own) if config.scales_actions and config.normalize_actions else own
    if _are_normalized(config):
        fix = f"actions of {own} have no range that [-1, 1] could stand for. Leave it out."
        require(scaled_space(own) is not own or space is own, "actions_in_input_normalized", True, fix)
        actions = in_units_of(own, np.clip(actions, -1, 1)) if space is own else np.clip(actions, -1, 1)
        return actions.astype(space.dtype), space
    if config.clip_actions:
        actions = clipped(actions, own)
    if space is own:
        return actions, own
    low, high = wide_bounds(own)
    outside = (actions < own.low) | (actions > own.high)
    if outside.any():
        row = int(np.argwhere(outside)[0][0])
        raise DatasetError(
            f"input_: row {row}: the action {actions[row]} is outside of {own}. Set "
            "offline_data(actions_in_input_normalized=True) if actions are recorded in [-1, 1], or "
            "environment(clip_actions=True) to bring them into the bounds."
        )
    return (2 * (actions - low) / (high - low) - 1).astype(space.dtype), space


def _are_normalized(config: OfflineConfig) -> bool:
    """Whether continuous actions are recorded in [-1, 1]."""
    if "actions_in_input_normalized" in config._given or isinstance(config.input_, Dataset):
        return config.actions_in_input_normalized
    found = {rllib.is_of_runners(Source(path)) for path in _paths(config.input_)}
    fix = "some of it was recorded by RLlib's runners, in [-1, 1], and some was not. Say actions_in_input_normalized."
    require(len(found) == 1, "input_", config.input_, fix)
    return found.pop()


def _together(config: OfflineConfig, said: tuple[Any, Any]) -> Dataset:
    """Returns all data that ``input_`` names, with actions as they are recorded."""
    if isinstance(config.input_, Dataset):
        return config.input_
    found = [_one(config, path, said) for path in _paths(config.input_)]
    data = found[0]
    for more in found[1:]:
        data = _joined(data, more)
    return data


def _one(config: OfflineConfig, path: str, said: tuple[Any, Any]) -> Dataset:
    if config.input_read_episodes or config.input_read_sample_batches:
        holds = rllib.EPISODES if config.input_read_episodes else rllib.SAMPLE_BATCHES
        name = "input_read_episodes" if config.input_read_episodes else "input_read_sample_batches"
        found = rllib.kind(Source(path))
        require(found == holds, name, True, f"{path} holds {found or 'no data of RLlib'}. Leave it out.")
    space = said[1]
    if isinstance(space, spaces.Box):  # bounds are checked once units are known
        space = spaces.Box(-np.inf, np.inf, space.shape, space.dtype.type)
    options = {"observation_space": said[0], "action_space": space, **own_names(config.input_read_schema)}
    return Dataset.load(path, **options)


def _joined(first: Dataset, second: Dataset) -> Dataset:
    """Joins two datasets, with the columns that both have."""
    shared = first.columns.keys() & second.columns.keys()
    one, other = (
        Dataset.from_parts(
            data.parts._replace(columns={name: data.columns[name] for name in sorted(shared)}),
            first.observation_space,
            first.action_space,
            first.env_id,
        )
        for data in (first, second)
    )
    return one + other


def _paths(given: Any) -> list[str]:
    """Returns the files and folders that are named, patterns filled in."""
    found: list[str] = []
    for path in given if isinstance(given, list | tuple) else [given]:
        name = str(path).removeprefix("file://")
        matches = sorted(glob.glob(str(Path(name).expanduser()))) if glob.has_magic(name) else [name]
        if not matches:
            raise FileNotFoundError(f"input_={name!r}: there is no such file.")
        found += matches
    return found


# -- learning ----------------------------------------------------------------------------------------------------------


class OfflineRunner(LocalRunner):
    """Learning from a dataset in this process.

    Args:
        model: polyak's algorithm, which has it.
        steps: gradient steps in each training step.
        moves: whether a setting changes from one to the next.
        restart: reset the counters.
        local_env_runner: the runner that programs get.
    """

    def __init__(self, model: Any, steps: int, moves: bool, restart: bool, local_env_runner: Any) -> None:
        super().__init__(model, None, restart, local_env_runner)
        self._steps, self._moves = steps, moves

    def iterate(self) -> bool:
        """Make the gradient steps of one training step."""
        model, steps = self.model, 1 if self._moves else self._steps
        for _ in range(0, self._steps, steps):
            with model._split.update:
                model.train(steps, model.batch_size)
            model.num_timesteps += steps
            model.clock.tick()
        for check in engine_checks(model):
            check()
        return True
