"""Environments whose observations pass through the pieces of a program before a module gets them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from polyak.compat.rllib_face.connectors.base import (
    ConnectorPipelineV2,
    ConnectorV2,
    EnvToModulePipeline,
    ModuleToEnvPipeline,
)
from polyak.compat.rllib_face.connectors.episodes import LOOKBACK, SingleAgentEpisode, mapped_parts, stacked
from polyak.compat.rllib_face.connectors.pieces import Rewriting
from polyak.compat.rllib_face.filters import FilteredEnv, MeanStdFilter
from polyak.envs import VecEnv
from polyak.envs.nested_spaces import compose, is_composed, is_nested, parts
from polyak.envs.state import EnvStateError
from polyak.envs.vec.vec_env import VecEnvWrapper
from polyak.envs.wrappers.by_name import VecNamedObservation
from polyak.hyperparameters.declaration import require


class ConnectedEnv(VecEnvWrapper):
    """Environments whose observations pass through pieces.

    Args:
        env: the environments.
        pipeline: the pieces.

    Attributes:
        rl_module: the module for pieces; ``None`` until there is one.
        metrics: their logger.
        explore: whether the module explores.
        keeps: whether episodes are kept until :meth:`taken` returns them.
        whole: all pieces and the filter before the module, which may include further ones.
        acting: the pieces for actions, usually none.
        shared: data that all pieces share.
        episodes: [N] the running episodes.
    """

    def __init__(self, env: VecEnv, pipeline: EnvToModulePipeline) -> None:
        super().__init__(env, observation_space=pipeline.observation_space)
        self.pipeline = pipeline
        self.rl_module: Any = None
        self.metrics: Any = None
        self.explore, self.keeps = True, False
        self.whole = pipeline
        self.acting = ModuleToEnvPipeline()
        self.shared: dict[str, Any] = {}
        self.episodes: list[SingleAgentEpisode] = []
        self._ended: list[list[SingleAgentEpisode]] = [[] for _ in range(self.num_envs)]

    def get_state(self) -> dict[str, Any]:
        raise EnvStateError("episodes that pieces are shown are not saved")

    def reset(self) -> Any:
        observations = self.venv.reset()
        self._ended = [[] for _ in range(self.num_envs)]
        self.episodes = [self._begun(observations, index) for index in range(self.num_envs)]
        return stacked(self._shown(self.episodes))

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions
        self.venv.step_async(actions)

    def step_wait(self) -> Any:
        observations, rewards, dones, infos = self.venv.step_wait()
        for index, episode in enumerate(self.episodes):
            info, done = infos[index], bool(dones[index])
            cut = done and bool(info.get("TimeLimit.truncated", False))
            last = self._whole(info["terminal_observation"]) if done else self._row(observations, index)
            episode.add_env_step(
                last, self._actions[index], rewards[index], info, terminated=done and not cut, truncated=cut
            )
        found = self._shown(self.episodes)
        ended = np.flatnonzero(dones).tolist()
        for index in ended:
            infos[index]["terminal_observation"] = found[index]
            if self.keeps:
                self._ended[index].append(self.episodes[index])
            self.episodes[index] = self._begun(observations, index)
        if ended:
            for index, one in zip(ended, self._shown([self.episodes[index] for index in ended]), strict=True):
                found[index] = one
        if not self.keeps:
            self.episodes = [one.cut(LOOKBACK) if len(one) > 2 * LOOKBACK else one for one in self.episodes]
        return stacked(found), rewards, dones, infos

    def _begun(self, observations: Any, index: int) -> SingleAgentEpisode:
        known = self.reset_infos
        return SingleAgentEpisode(
            observations=[self._row(observations, index)],
            observation_space=self.pipeline.input_observation_space,
            action_space=self.action_space,
            infos=[known[index]] if known else None,
        )

    def _row(self, observations: Any, index: int) -> Any:
        return self._whole(mapped_parts(observations, lambda part: np.array(part[index])))

    def _whole(self, observation: Any) -> Any:
        """Returns the nested observation whose parts the environments have by name."""
        own = self.pipeline.input_observation_space
        if not is_nested(own):
            return observation
        return compose(own, iter([observation[part.name] for part in parts(own)]))

    def _shown(self, episodes: list[SingleAgentEpisode]) -> list[Any]:
        """Returns the pieces' output for the last observation of each episode."""
        found = self.pipeline.observations(
            rl_module=self.rl_module,
            episodes=episodes,
            explore=self.explore,
            shared_data=self.shared,
            metrics=self.metrics,
        )
        require(len(found) == len(episodes), "env_to_module_connector", self.pipeline.connectors, _COUNT)
        return [_fitted(one, self.observation_space) for one in found]

    def taken(self) -> list[list[SingleAgentEpisode]]:
        """Returns for each environment [N] the stretches of episodes since the last call, in order."""
        found, self._ended = self._ended, [[] for _ in range(self.num_envs)]
        for index, one in enumerate(self.episodes):
            if len(one):
                found[index].append(one)
                self.episodes[index] = one.cut()
        return found


_COUNT = "they made another number of observations than there are episodes."


def _fitted(observation: Any, space: spaces.Space) -> Any:
    """Returns an observation with the shapes and types of its space.

    Raises:
        HyperparameterError: it has others.
    """
    if is_composed(space):
        children: dict[Any, Any] = dict(
            space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        )
        keys = set(observation) if isinstance(observation, Mapping) else set(range(len(observation)))
        require(keys == set(children), "env_to_module_connector", sorted(keys, key=str), f"{_SAID}{space}.")
        found = {key: _fitted(observation[key], child) for key, child in children.items()}
        return found if isinstance(space, spaces.Dict) else tuple(found.values())
    made = np.asarray(observation)
    right = made.shape == space.shape and np.can_cast(made.dtype, space.dtype or made.dtype, "same_kind")
    require(right, "env_to_module_connector", f"{made.dtype} {made.shape}", f"{_SAID}{space}.")
    return made.astype(space.dtype, copy=False)


_SAID = "what the pieces make must be of the space that recompute_output_observation_space() returns: "


class BoundFilter(ConnectorV2):
    """A filter with the statistics of environments, for programs that call the pieces themselves.

    Args:
        env: the environments with the statistics.
    """

    def __init__(self, env: FilteredEnv) -> None:
        super().__init__(env.observation_space, env.action_space)
        self._env = env

    def __call__(self, *, rl_module: Any, batch: Any, episodes: list[Any], **kwargs: Any) -> Any:
        for episode in episodes:
            episode.set_observations(at_indices=-1, new_data=self._env.normalize_obs(episode.get_observations(-1)))
        return batch


class _Vector:
    """Environments as RLlib shows them to the function that makes pieces."""

    def __init__(self, env: VecEnv, observations: Any, actions: Any) -> None:
        self._env = env
        self.single_observation_space, self.single_action_space = observations, actions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)


def connected(env: VecEnv, own: Any, own_actions: Any, config: Any, training: bool) -> VecEnv:
    """Wraps environments in the filter and the pieces of a config, if it has any.

    Args:
        env: the environments.
        own: their observation space; if it is nested, ``env`` has its parts by name.
        own_actions: their space of actions in their own units.
        config: the config.
        training: whether they are for training, which updates statistics.
    """
    known = {"__env__": (own, own_actions), "__env_single__": (own, own_actions)}
    pipeline = config.build_env_to_module_connector(env=_Vector(env, own, own_actions), spaces=known)
    filters = [one for one in pipeline.connectors if isinstance(one, MeanStdFilter)]
    require(len(filters) < 2, "env_to_module_connector", filters, "one filter is enough.")
    for piece in pipeline.connectors:
        fix = "it stands in env_to_module_connector: leave as_learner_connector out."
        here = not (isinstance(piece, Rewriting) and piece.as_learner_connector)
        require(here, "as_learner_connector", True, fix)
    shown = training and config.shows_rollouts()
    if filters and shown:
        fix = "pieces of learner_connector are shown rewards as they are: use MeanStdFilter(rewards=False)."
        require(not filters[0].rewards, "env_to_module_connector", filters[0], fix)
    run: list[Any] = []
    for place, piece in enumerate(list(pipeline.connectors)):
        if not isinstance(piece, MeanStdFilter):
            run.append(piece)
            continue
        env, run = _passing(env, run, own, own_actions), []
        own = env.observation_space
        env = FilteredEnv(env, piece, config.gamma, training)
        pipeline.connectors[place] = BoundFilter(env)
    env = _passing(env, run, own, own_actions)
    acting = config.build_module_to_env_connector(env=_Vector(env, own, own_actions), spaces=known)
    if shown or (len(acting) and not layers_of(env)):
        env = ConnectedEnv(env, EnvToModulePipeline(env.observation_space, own_actions))
    for layer in layers_of(env):
        layer.whole, layer.acting, layer.shared = pipeline, acting, layers_of(env)[0].shared
    return env


def _passing(env: VecEnv, run: list[Any], own: Any, own_actions: Any) -> VecEnv:
    if not run:
        return env
    env = ConnectedEnv(env, EnvToModulePipeline(own, own_actions, connectors=run))
    nested = is_nested(env.observation_space) or isinstance(env.observation_space, spaces.Tuple)
    return VecNamedObservation(env) if nested else env


def state_of_pieces(env: Any) -> dict[str, Any]:
    """Returns the learned state of the environments' pieces, ``env_to_module`` and ``module_to_env``, where they
    exist."""
    return {name: pieces.get_state() for name, pieces in _pieces(env).items()}


def load_state_of_pieces(env: Any, state: Mapping[str, Any]) -> None:
    """Restore a state that :func:`state_of_pieces` returned, or parts of it."""
    for name, pieces in _pieces(env).items():
        if name in state:
            pieces.set_state(state[name])


def _pieces(env: Any) -> dict[str, ConnectorPipelineV2]:
    if not (layers := layers_of(env)):
        return {}
    top = layers[0]
    return {"env_to_module": top.whole, **({"module_to_env": top.acting} if len(top.acting) else {})}


def layers_of(env: Any) -> list[ConnectedEnv]:
    """Returns the layers of environments with pieces, the outermost first."""
    found = []
    while isinstance(env, VecEnvWrapper):
        if isinstance(env, ConnectedEnv):
            found.append(env)
        env = env.venv
    return found
