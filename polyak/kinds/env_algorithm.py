"""Algorithms that meet environments: which, with what statistics, and the episodes that ended there."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from polyak.algorithm import Algorithm
from polyak.checkpoint.saved import (
    Saved,
    check_counter,
    join_state,
    join_tree,
    prefixed,
    split_state,
    split_tree,
)
from polyak.collecting.runner import Acting, Runner
from polyak.data import Dataset
from polyak.data.step import Observations, Step
from polyak.envs import VecEnv, VecEnvWrapper, VecNormalize, as_vec_env
from polyak.envs.adapters.infos import as_monitored, episode_columns
from polyak.envs.adapters.vec_env import FromVecEnv
from polyak.envs.masks import KEY, Masks, find_masks
from polyak.envs.normalisation import Normalisation
from polyak.envs.spaces import SpaceError, check_for_correct_spaces
from polyak.envs.state import EnvStateError
from polyak.envs.wrappers.layers import (
    PartNormalizer,
    turned_images,
)
from polyak.envs.wrappers.normalize import detached
from polyak.envs.wrappers.transpose import VecTransposeImage
from polyak.hyperparameters.declaration import Becomes, declared, later
from polyak.kinds.action_spaces import FROM_DATA, TAKE, check_action_space
from polyak.kinds.held import Held
from polyak.nn.export.observations import Reader, image_keys
from polyak.seeding import derived_seed
from polyak.warning import advise, warn_user

GymEnv = gym.Env | VecEnv | gym.vector.VectorEnv
Recipe = str | Callable[..., Any]
"""What environments are made of: a registered name, or a function, which needs runners (``n_runners``)."""
_FURTHER_EPISODES = 1
"""Sets the seeds of environments apart from those of evaluations after as many steps."""


class EnvAlgorithm(Algorithm):
    """What an algorithm has that learns by acting in ``env``, which it gets as a constructor's argument."""

    action_spaces: ClassVar[tuple[type[spaces.Space], ...]] = (spaces.Space,)
    """Action spaces that the algorithm can handle."""
    policies_squash: ClassVar[bool] = False
    """Whether actions are scaled to the bounds of a Box, however wide it is."""
    _alternatives: ClassVar[Mapping[type[spaces.Space], str]] = TAKE
    """Kind of an action space -> algorithms to use instead, where this one cannot act in it."""
    raw_experience: ClassVar[bool] = False
    """Whether experience is stored as it was before normalisation."""
    steps_environments: ClassVar[bool] = True
    """Whether it learns by stepping ``env`` itself; games are searched, and a generator acts for what imitates."""
    supports_masks: ClassVar[bool] = False
    """Whether it leaves alone what environments forbid: see :mod:`polyak.envs.masks`."""
    predicts_raw: ClassVar[bool] = True
    """Whether a model that was loaded without an environment normalises what :meth:`predict` gets by itself."""

    built_with: ClassVar[Mapping[str, str]] = {"env": "use model.set_env(env)."}
    if TYPE_CHECKING:
        env: Becomes[GymEnv | str | None, VecEnv | None] = later()
    n_envs: int = 1
    runner: Runner | None = None
    _vec_normalize_env = Held[VecNormalize | PartNormalizer | None]("normalisation.replay")
    """What normalises experience when it is replayed."""
    _saved_without_masks: bool = False
    """Whether the file that the model came from holds a step of environments, and no masks of it."""
    _would_replay: bool = False
    """Whether the model came from a file, and its environments would begin with the seeds that they had there."""

    def __post_init__(self, _init_setup_model: bool) -> None:
        env, self.env = self.env, None
        self.normalisation = Normalisation(by_itself=self.predicts_raw)
        self._check_no_policy(env)
        super().__post_init__(_init_setup_model)
        self._read_arguments()
        if env is not None:
            self._attach_env(env)
            if _init_setup_model:
                self._setup_model()
                self._check_built()

    def _read_arguments(self) -> None:
        """Take up what arguments say, which are in order, before there is an environment."""

    def _check_no_policy(self, env: Any) -> None:
        """Refuse the name of a policy where the environment belongs, before other arguments are taken for wrong."""
        if isinstance(env, str) and re.fullmatch(r"\w*Policy", env):
            name, takes_one = type(self).__name__, "policy" in declared(type(self))
            fix = f"the policy comes first: {name}({env!r}, env)" if takes_one else f"{name} takes none: {name}(env)"
            raise ValueError(f"env={env!r} is a policy, not an environment; {fix}.")

    def _summary(self) -> dict[str, str]:
        env = vars(self).get("env")
        if not self.steps_environments:
            return super()._summary()
        if env is None:
            return {"environment": "none", **super()._summary()}
        return {"environment": f"{env.num_envs} x {_name_of(env.unwrapped)} in {_layers(env)}", **super()._summary()}

    @classmethod
    def trial(cls) -> dict[str, Any]:
        acts = any(issubclass(spaces.Box, kind) for kind in cls.action_spaces)
        return {**super().trial(), "env": "Pendulum-v1" if acts else "CartPole-v1"}

    def _setup_model(self) -> None:
        super()._setup_model()
        self._build()
        if self.env is not None and self._acts:
            self._make_runner()

    def _build(self) -> None:
        """Build what learns, before there is a runner."""

    def make_actor(self) -> Acting:
        """What chooses actions while experience is collected."""
        raise NotImplementedError

    # -- environments --------------------------------------------------------------------------------------------------

    def _attach_env(self, env: Any) -> None:
        """Use what a constructor got as ``env``."""
        if isinstance(env, Dataset):
            raise ValueError(
                f"env={env!r:.200} is a dataset, but {type(self).__name__} learns by acting. Pass an environment, or "
                f"learn from it with {FROM_DATA.get(type(env.action_space), 'BC')}."
            )
        self._use_env(self._vectorised(env))

    def _vectorised(self, env: Any) -> VecEnv:
        """Whatever a user calls an environment, as training needs it."""
        return as_vec_env(env, verbose=self.verbose)

    @property
    def _acts(self) -> bool:
        """Whether learning takes an environment to act in."""
        return self.steps_environments

    def _use_env(self, env: VecEnv) -> None:
        self._check_action_space(env.action_space)
        self._put(env=env)
        self.n_envs = env.num_envs
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.normalisation.use(env, self.raw_experience)

    def _make_runner(self) -> None:
        """Something that acts in the environment, when there is both."""
        assert self.env is not None
        rows = FromVecEnv(self.env, raw=self.raw_experience, masks=self._masks())
        self.runner = Runner(rows, self.make_actor(), self._split)

    def _masks(self) -> Masks | None:
        """Which choices the environments allow; ``None``: all, always."""
        assert self.env is not None
        masks = find_masks(self.env)
        if masks is None or self._uses_masks:
            return masks
        advise(
            "forbidden actions",
            f"the environment says which actions it allows, but {type(self).__name__} does not support masks and will "
            "take others, too. Use an algorithm that does: PPO, A2C, TRPO, PQN, DQN and its family.",
        )
        return None

    @property
    def _uses_masks(self) -> bool:
        return self.supports_masks

    def _masks_found(self) -> None:
        """The first reset has shown that environments say which choices they allow."""

    def _check_action_space(self, space: spaces.Space) -> None:
        explores = not self.policies_squash
        check_action_space(type(self).__name__, space, self.action_spaces, self._alternatives, explores)

    def get_env(self) -> VecEnv | None:
        """The vectorised environment, with every wrapper."""
        return self.env

    def get_vec_normalize_env(self) -> VecNormalize | None:
        """The normalising wrapper among the environment's wrappers, if there is one."""
        return self.normalisation.own

    def set_env(self, env: GymEnv | Recipe, force_reset: bool = True) -> None:
        """Continue in another environment of the same spaces.

        Args:
            env: the new environment; ``n_envs`` must not change once the model has learned with the old one.
            force_reset: start new episodes at the next ``learn``; ``False`` continues from the last observations.

        Raises:
            ValueError: the spaces or the number of environments differ.
        """
        vec_env = self._with_statistics(self._vectorised(env))
        if vec_env.num_envs != self.n_envs:
            raise SpaceError(
                f"env has {vec_env.num_envs} environments, but the model was built for n_envs={self.n_envs}, which "
                f"set_env() keeps. To change it, use {type(self).__name__}.load(path, env=env)."
            )
        check_for_correct_spaces(vec_env, self.observation_space, self.action_space)
        state = self.runner.state() if self.runner is not None and not force_reset else {}
        self._use_env(vec_env)
        self._make_runner()
        assert self.runner is not None
        self.runner.load_state(state)

    def _with_statistics(self, env: VecEnv) -> VecEnv:
        """``env`` under the normalisation that the model learned with."""
        return self.normalisation.put_around(env, self.num_timesteps)

    @property
    def _last_obs(self) -> Observations | None:
        return self.runner.obs if self.runner is not None else None

    @_last_obs.setter
    def _last_obs(self, value: Observations | None) -> None:
        if self.runner is not None:
            self.runner.take_up(value)

    @property
    def _last_episode_starts(self) -> np.ndarray | None:
        return self.runner.episode_starts if self.runner is not None else None

    @_last_episode_starts.setter
    def _last_episode_starts(self, value: np.ndarray) -> None:
        if self.runner is not None:
            self.runner.episode_starts = value

    @property
    def _last_original_obs(self) -> Observations | None:
        return self.runner.original_obs if self.runner is not None else None

    def _seed(self, seed: int) -> None:
        super()._seed(seed)
        self._would_replay = False
        if self.env is not None and self._acts:
            self.env.seed(seed)

    # -- learning ------------------------------------------------------------------------------------------------------

    def _check_ready(self) -> None:
        super()._check_ready()
        if self._acts and self.env is None:
            raise ValueError(
                "env=None: this model has no environment to learn in. Pass one: "
                f"`{type(self).__name__}.load(path, env=...)` or `model.set_env(env)`."
            )

    def _prepare_to_learn(self, reset: bool) -> None:
        super()._prepare_to_learn(reset)
        if not self._acts:
            return
        if self.runner is None:  # a subclass has set itself up otherwise
            self._make_runner()
        assert self.runner is not None
        unknown = self.runner.obs is None
        if reset or unknown or self.runner.interrupted:
            if unknown and not reset:
                self._seed_further_episodes()
            self._start_episodes()
        self._would_replay = False

    def _check_iteration(self) -> None:
        super()._check_iteration()
        runner = self.runner
        if runner is not None and runner.interrupted and not (runner.is_ahead or self.steps_in_thread):
            self._start_episodes()

    @property
    def steps_in_thread(self) -> bool:
        """Whether environments are stepped in another thread while callbacks are asked."""
        return False

    def _seed_further_episodes(self) -> None:
        """Let a training that continues from a file begin with other episodes than at its start: those that follow
        from the seed and the number of steps. Seeds that the environments have been given since then stay."""
        assert self.runner is not None
        assert self.env is not None
        env = self.env.unwrapped
        if self._would_replay and self.seed is not None and env._seeds[:1] == [self.seed]:
            env.seed(derived_seed(self.seed, self.num_timesteps, _FURTHER_EPISODES))
        self._would_replay = False

    @contextmanager
    def _while_learning(self) -> Iterator[None]:
        with super()._while_learning():
            try:
                yield
            finally:
                if self.runner is not None:
                    self.runner.close_thread()

    def _start_episodes(self) -> None:
        """Reset the environments, in the middle of an episode if need be."""
        assert self.runner is not None
        known = self.runner.env.masked
        self.runner.reset()
        if self.runner.env.masked and not known:
            self._masks_found()
        elif not known and (masks := self._masks()) is not None:
            self._use_masks(masks)

    def _use_masks(self, masks: Masks) -> None:
        """Let these say which choices the environments allow, which was not known before."""
        assert self.runner is not None
        rows = self.runner.env
        assert isinstance(rows, FromVecEnv)
        rows.masks = masks
        if self.runner.obs is not None:
            self.runner.allowed = masks.after_reset(self.runner.stored_obs)
        self._masks_found()

    def _note_episodes(self, step: Step) -> None:
        """Keep the statistics of the episodes that ended in a step. A class with an ``_update_info_buffer`` of its own
        is asked instead, as Stable-Baselines3 does."""
        if getattr(self._update_info_buffer, "__func__", None) is not EnvAlgorithm._update_info_buffer:
            self._update_info_buffer(list(step.infos), step.dones)
        elif step.episodes:
            self._keep_statistics(step.episodes)

    def _update_info_buffer(self, infos: list[dict[str, Any]], dones: np.ndarray | None = None) -> None:
        """Keep the statistics of the episodes that ended, as infos have them."""
        self._keep_statistics(episode_columns(infos, dones))

    def _keep_statistics(self, episodes: Mapping[str, np.ndarray]) -> None:
        """Keep those that are columns: see :class:`~polyak.envs.protocol.Outcome`."""
        self.ep_info_buffer.extend(as_monitored(episodes))
        if (success := episodes.get("success")) is not None:
            self.ep_success_buffer.extend(success[~np.isnan(success)].tolist())

    # -- observations before normalisation -----------------------------------------------------------------------------

    def as_shown(self, observations: Any) -> Any:
        """Observations of a bare environment as :meth:`predict` takes them: see :func:`~polyak.envs.shown.shown_to`.

        Args:
            observations: one or a batch, as they were before ``VecNormalize``.

        Raises:
            ValueError: wrappers around ``VecNormalize`` change observations further.
        """
        return self.normalisation.shown(observations)

    def _as_learned(self, observation: Any) -> Any:
        return self.normalisation.as_learned(observation, self.observation_space)

    # -- exporting -----------------------------------------------------------------------------------------------------

    @property
    def _allows_everything(self) -> bool:
        """Whether it is known that the environment forbids no action: it has been reset, here or before the file was
        written, and has not said so."""
        if self.runner is None or self.runner.obs is None:
            return self._saved_without_masks
        return not self.runner.env.masked

    def _reader(self, channels_last: bool | None) -> Reader:
        """From observations as the environment gives them to those that the policy reads."""
        if self.normalisation.of_observations is not None:
            what = "an exported graph reads observations of an environment without VecNormalize"
            self.normalisation.check_nothing_above(what, besides=VecTransposeImage.__name__)
            self.normalisation.check_own_maps(what)
        if channels_last is None:
            turned: Sequence[str | None] = turned_images(self.env)
        else:
            turned = image_keys(self.observation_space) if channels_last else ()
        return Reader(self.observation_space, self.normalisation.known, turned)

    # -- files ---------------------------------------------------------------------------------------------------------

    def _description(self) -> dict[str, Any]:
        return {**super()._description(), "n_envs": self.n_envs}

    def _save_state(self, saved: Saved, include: set[str]) -> None:
        super()._save_state(saved, include)
        if self.runner is not None:
            saved.state |= prefixed("runner", self.runner.state())
            self._save_environments(saved, self.runner)
        self._save_statistics(saved)

    def _save_statistics(self, saved: Saved) -> None:
        """Those that the model learned under."""
        if (normalizer := self.normalisation.known) is not None:
            if normalizer.overrides("normalize_obs", "_normalize_obs", "normalize_reward"):
                name = type(normalizer).__name__
                advise(
                    "a file with statistics of an own normalisation",
                    f"{name} normalises by code of its own, and a model's file holds the statistics alone: load it "
                    f"with env={name}(...), which takes them.",
                )
            saved.info["normalizer"], arrays = split_state(normalizer.state_dict())
            if above := self.normalisation.above:
                saved.info["above_normalizer"] = list(above)
            saved.state |= prefixed("normalizer", arrays)

    def _save_environments(self, saved: Saved, runner: Runner) -> None:
        """Their exact state, or why it is not known."""
        if runner.obs is None:
            return
        try:
            if runner.is_ahead or self.steps_in_thread:
                raise EnvStateError("they are stepped in another thread (overlap=True)")
            arrays: dict[str, np.ndarray] = {}
            saved.info["environments"] = split_tree(runner.env.get_state(), arrays)
            saved.state |= prefixed("environments", arrays)
        except Exception as error:  # of a user's own get_state, too
            saved.info["environments_unknown"] = f"{error}"[:1000]

    def _restore_environments(self, saved: Saved) -> bool:
        """Put the environments into the state that the file holds. Whether they are in it now."""
        assert self.runner is not None
        why = saved.info.get("environments_unknown")
        if why is None and "environments" not in saved.info:
            return False  # an older file, or one of a model that had not acted
        if why is None:
            try:
                state = join_tree(saved.info["environments"], saved.state_of("environments"))
                self.runner.env.set_state(state)
                return True
            except Exception as error:  # of a user's own set_state, too
                why = f"{error}"
        warn_user(f"training resumes with new episodes, since the state of the environments is unknown: {why}")
        return False

    def _take_masks(self, allowed: np.ndarray) -> None:
        """Find where environments say which choices they allow, which those that say it in infos have not shown yet.

        Args:
            allowed: [N, M] what they have said of the observations in hand.
        """
        assert self.env is not None
        self.env.unwrapped.reset_infos = [{KEY: row} for row in allowed.astype(bool)]
        if (masks := self._masks()) is not None:
            self._use_masks(masks)

    def _enter(self, saved: Saved, env: Any) -> None:
        if not self.steps_environments:
            return super()._enter(saved, env)
        check_counter("n_envs", saved.info["n_envs"], least=1)
        self.n_envs = int(saved.info["n_envs"])
        acted = saved.state_of("runner")
        self._saved_without_masks = bool(acted) and not any(name.startswith("allowed") for name in acted)
        if "normalizer" in saved.info:
            statistics = detached(join_state(saved.info["normalizer"], saved.state_of("normalizer")))
            self.normalisation.load(statistics, tuple(map(str, saved.info.get("above_normalizer", ()))))
        if env is not None:
            vec_env = self._with_statistics(self._vectorised(env))
            check_for_correct_spaces(vec_env, self.observation_space, self.action_space)
            self._use_env(vec_env)

    def _resume(self, saved: Saved, resume: bool, force_reset: bool) -> None:
        super()._resume(saved, resume, force_reset)
        if self.runner is None:
            return
        self._would_replay = self.num_timesteps > 0
        exact = resume and saved.info["n_envs"] == self.n_envs and self._restore_environments(saved)
        if exact or not force_reset:
            state = saved.state_of("runner")
            if exact and "allowed" in state and not self.runner.env.masked:
                self._take_masks(state["allowed"])
            self.runner.load_state(state)
            if resume and self.seed is not None:  # the model's seed has been used: a reset to come must not repeat it
                assert self.env is not None
                self.env.unwrapped._reset_seeds()
        elif resume:
            self._seed_further_episodes()


def _name_of(env: VecEnv) -> str:
    """What the environments of a vector are called, without asking another process, which may be in a step."""
    envs = getattr(env, "envs", None)
    if not envs:
        return "environment"
    spec = getattr(envs[0], "spec", None)
    return type(envs[0].unwrapped).__name__ if spec is None else spec.id


def _layers(env: VecEnv) -> str:
    """``VecNormalize(DummyVecEnv)``."""
    name = type(env).__name__
    return f"{name}({_layers(env.venv)})" if isinstance(env, VecEnvWrapper) else name
