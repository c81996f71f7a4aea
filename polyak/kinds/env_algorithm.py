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
from polyak.envs import VecEnv, VecEnvWrapper, VecNormalize, as_vec_env, unwrap_vec_normalize
from polyak.envs.adapters.infos import as_monitored, episode_columns
from polyak.envs.adapters.vec_env import FromVecEnv
from polyak.envs.composed import is_composed, parts
from polyak.envs.masks import KEY, Masks, find_masks
from polyak.envs.spaces import check_for_correct_spaces, maybe_transpose, wide_bounds
from polyak.envs.state import EnvStateError
from polyak.envs.wrappers.layers import (
    PartNormalizer,
    above_normalisation,
    check_one_normaliser,
    replay_normalizer,
    turned_images,
    wrapped_beneath,
)
from polyak.envs.wrappers.normalize import detached
from polyak.envs.wrappers.transpose import VecTransposeImage
from polyak.hyperparameters.declaration import Becomes, declared, later
from polyak.nn.export.observations import Reader, image_keys
from polyak.seeding import derived_seed
from polyak.warning import advise, warn_user

GymEnv = gym.Env | VecEnv | gym.vector.VectorEnv
Recipe = str | Callable[..., Any]
"""What environments are made of: a registered name, or a function, which needs runners (``n_runners``)."""
_FURTHER_EPISODES = 1
"""Sets the seeds of environments apart from those of evaluations after as many steps."""


TAKE = {
    spaces.Box: "SAC, TD3 or PPO",
    spaces.Discrete: "DQN, PPO or DiscreteSAC",
    spaces.MultiDiscrete: "PPO, A2C or TRPO",
    spaces.MultiBinary: "PPO, A2C or TRPO",
    spaces.Dict: "PPO, A2C or TRPO",
    spaces.Tuple: "PPO, A2C or TRPO",
}
"""Kind of an action space -> algorithms that learn by acting in it."""
FROM_DATA = {
    spaces.Box: "IQL, CQL or BC",
    spaces.Discrete: "DiscreteCQL, BCQ or BC",
    spaces.MultiDiscrete: "BC",
    spaces.MultiBinary: "BC",
}
"""Kind of an action space -> algorithms that learn from recorded actions."""


class SpaceError(ValueError, AssertionError):
    """An algorithm cannot act in a space. Also an AssertionError, which is what Stable-Baselines3 raises here."""


class Interaction(Algorithm):
    """What an algorithm has that learns by acting in ``env``, which it gets as a constructor's argument."""

    action_spaces: ClassVar[tuple[type[spaces.Space], ...]] = (spaces.Space,)
    """Action spaces that the algorithm can handle."""
    policies_squash: ClassVar[bool] = False
    """Whether actions are scaled to the bounds of a Box, however wide it is."""
    _alternatives: ClassVar[Mapping[type[spaces.Space], str]] = TAKE
    """Kind of an action space -> algorithms to use instead, where this one cannot act in it."""
    raw_experience: ClassVar[bool] = False
    """Whether experience is stored as it was before normalisation."""
    heeds_masks: ClassVar[bool] = False
    """Whether it leaves alone what environments forbid: see :mod:`polyak.envs.masks`."""
    predicts_raw: ClassVar[bool] = True
    """Whether a model that was loaded without an environment normalises what :meth:`predict` gets by itself."""

    built_with: ClassVar[Mapping[str, str]] = {"env": "use model.set_env(env)."}
    if TYPE_CHECKING:
        env: Becomes[GymEnv | str | None, VecEnv | None] = later()
    n_envs: int = 1
    runner: Runner | None = None
    _vec_normalize_env: VecNormalize | PartNormalizer | None = None
    """What normalises experience when it is replayed."""
    _statistics: VecNormalize | None = None
    """Those of the file that the model came from."""
    _above: tuple[str, ...] = ()
    """Wrappers that changed observations after these statistics had normalised them, as the file says."""
    _saved_without_masks: bool = False
    """Whether the file that the model came from holds a step of environments, and no masks of it."""
    _would_replay: bool = False
    """Whether the model came from a file, and its environments would begin with the seeds that they had there."""

    def __post_init__(self, _init_setup_model: bool) -> None:
        env, self.env = self.env, None
        self._check_no_policy(env)
        super().__post_init__(_init_setup_model)
        if env is not None:
            self._take_up(env)
            if _init_setup_model:
                self._setup_model()
                self._check_built()

    def _check_no_policy(self, env: Any) -> None:
        """Refuse the name of a policy where the environment belongs, before other arguments are taken for wrong."""
        if isinstance(env, str) and re.fullmatch(r"\w*Policy", env):
            name, takes_one = type(self).__name__, "policy" in declared(type(self))
            fix = f"the policy comes first: {name}({env!r}, env)" if takes_one else f"{name} takes none: {name}(env)"
            raise ValueError(f"env={env!r} is a policy, not an environment; {fix}.")

    def _card(self) -> dict[str, str]:
        env = vars(self).get("env")
        if env is None:
            return {"environment": "none", **super()._card()}
        return {"environment": f"{env.num_envs} x {_name_of(env.unwrapped)} in {_layers(env)}", **super()._card()}

    @classmethod
    def trial(cls) -> dict[str, Any]:
        acts = any(issubclass(spaces.Box, kind) for kind in cls.action_spaces)
        return {**super().trial(), "env": "Pendulum-v1" if acts else "CartPole-v1"}

    def _setup_model(self) -> None:
        super()._setup_model()
        if self.env is not None:
            self._make_runner()

    def make_actor(self) -> Acting:
        """What chooses actions while experience is collected."""
        raise NotImplementedError

    # -- environments --------------------------------------------------------------------------------------------------

    def _take_up(self, env: Any) -> None:
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
        return True

    def _use_env(self, env: VecEnv) -> None:
        self._check_action_space(env.action_space)
        self._put(env=env)
        self.n_envs = env.num_envs
        self.observation_space, self.action_space = env.observation_space, env.action_space
        check_one_normaliser(env)
        self._vec_normalize_env = replay_normalizer(env)
        if self.raw_experience:
            self._advise_on_layers(env)

    def _advise_on_layers(self, env: VecEnv) -> None:
        """Warn of wrappers that have experience replayed by statistics that have grown old."""
        normalizer, above = unwrap_vec_normalize(env), above_normalisation(env)
        if normalizer is None:
            return
        changed = {"observations": above.observations if normalizer.norm_obs else ()}
        changed["rewards"] = above.rewards if normalizer.norm_reward else ()
        for what, names in changed.items():
            if names:
                advise(
                    f"wrappers around VecNormalize that change {what}",
                    f"{names[0]} stands around VecNormalize and changes {what}: they are stored as it returns them, "
                    "normalised by the statistics of that time, not by the newest ones whenever they are replayed. To "
                    f"have that, put VecNormalize around {names[0]}. If it changes no {what}, name them in its class: "
                    f"passes_on = ({what!r},).",
                )

    def _make_runner(self) -> None:
        """Something that acts in the environment, when there is both."""
        assert self.env is not None
        rows = FromVecEnv(self.env, raw=self.raw_experience, masks=self._masks())
        self.runner = Runner(rows, self.make_actor(), self._split)

    def _masks(self) -> Masks | None:
        """Which choices the environments allow; ``None``: all, always."""
        assert self.env is not None
        masks = find_masks(self.env)
        if masks is None or self._heeds_masks:
            return masks
        advise(
            "forbidden actions",
            f"the environment says which actions it allows, but {type(self).__name__} does not heed masks and will "
            "take others, too. Use an algorithm that does: PPO, A2C, TRPO, PQN, DQN and its family.",
        )
        return None

    @property
    def _heeds_masks(self) -> bool:
        return self.heeds_masks

    def _masks_found(self) -> None:
        """The first reset has shown that environments say which choices they allow."""

    def _check_action_space(self, space: spaces.Space) -> None:
        name = type(self).__name__
        if not isinstance(space, self.action_spaces):
            supported = ", ".join(kind.__name__ for kind in self.action_spaces)
            others = self._alternatives.get(type(space), "")
            raise SpaceError(
                f"{name} does not support the action space {space}. The algorithm only supports {supported}: use "
                f"another algorithm{others and f', such as {others}'}, or wrap the environment."
            )
        if is_composed(space):
            self._check_parts(space)
        if isinstance(space, spaces.Box) and not np.all(np.isfinite(np.array([space.low, space.high]))):
            raise SpaceError(
                f"{name} needs finite bounds of a continuous action space, got {space}. Wrap the environment in "
                "gymnasium.wrappers.RescaleAction or give the Box finite low and high."
            )
        if isinstance(space, spaces.Box) and not self.policies_squash:
            low, high = wide_bounds(space)
            half = float(np.max(high - low)) / 2
            if not 0.1 <= half <= 10:
                advise(
                    "scale of actions",
                    f"{name} explores with a standard deviation of about 1, but the actions of {space} span "
                    f"+-{half:g}. Bring them to [-1, 1]: gymnasium.wrappers.RescaleAction(env, -1, 1).",
                )
        if isinstance(space, spaces.MultiBinary) and len(space.shape) > 1:
            raise SpaceError(
                f"Multi-dimensional MultiBinary({space.n}) action space is not supported. Flatten it to one dimension."
            )

    def _check_parts(self, space: spaces.Space) -> None:
        """Refuse an action space composed of such that the algorithm would refuse by themselves."""
        found = parts(space)
        if not found:
            raise SpaceError(f"The action space {space} has no parts. Give it one.")
        for part in found:
            try:
                self._check_action_space(part.space)
            except SpaceError as error:
                raise SpaceError(f"In the action space {space}, part {part.name!r}: {error}") from None

    def get_env(self) -> VecEnv | None:
        """The vectorised environment, with every wrapper."""
        return self.env

    def get_vec_normalize_env(self) -> VecNormalize | None:
        """The normalising wrapper among the environment's wrappers, if there is one."""
        return unwrap_vec_normalize(self.env) if self.env is not None else None

    def set_env(self, env: GymEnv | Recipe, force_reset: bool = True) -> None:
        """Go on with another environment of the same spaces.

        Args:
            env: the new environment; ``n_envs`` must not change once the model has learned with the old one.
            force_reset: start new episodes at the next ``learn``; ``False`` goes on from the last observations.

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
        """``env`` under the normalisation that the model learned with: wrapped, if it came from a file with statistics,
        beneath those wrappers of ``env`` that stood around ``VecNormalize``.

        A normalising wrapper of its own that has seen no data takes the model's statistics; one that has, or that they
        do not fit, stays as it is, with a warning if they differ.
        """
        known, own = self.get_vec_normalize_env() or self._statistics, unwrap_vec_normalize(env)
        if known is own:
            return env
        if known is None:
            self._advise_on_new_scale(own)
            return env
        if own is None:
            if self._statistics is None:
                return env
            state = known.state_dict()
            wrapped = wrapped_beneath(env, self._above, lambda venv: VecNormalize.from_state_dict(venv, state))
            if wrapped is None:
                self._check_nothing_above(f"env is not in a {self._above[0]}")
            return wrapped or env
        if not known.has_seen_data:
            return env
        if own.has_seen_data:
            kept = None if own.same_statistics(known) else "it has statistics of its own"
        else:
            kept = own.take_statistics(known)
        if kept is not None:
            warn_user(
                f"env has a VecNormalize that does not take the statistics which the model learned with: {kept}. They "
                "are taken by an environment without VecNormalize, or with a new one of the same settings.",
                UserWarning,
            )
        return env

    @property
    def normalises_observations(self) -> bool:
        """Whether the model learned, or learns, from observations normalised by ``VecNormalize``."""
        normalizer = self.get_vec_normalize_env() or self._statistics
        return normalizer is not None and normalizer.norm_obs

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
        if self.env is not None:
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
        """Let a training that goes on from a file begin with other episodes than it once began with: those that follow
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
        if getattr(self._update_info_buffer, "__func__", None) is not Interaction._update_info_buffer:
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

    @property
    def normalises_by_itself(self) -> bool:
        """Whether :meth:`predict` normalises observations by the statistics of the file, as it does where there is no
        environment to do that."""
        return self.env is None and self.predicts_raw and self.normalises_observations and not self._above

    def as_shown(self, observations: Any) -> Any:
        """Observations of a bare environment as :meth:`predict` takes them: see :func:`~polyak.envs.shown.shown_to`.

        Args:
            observations: one or a batch, as they were before ``VecNormalize``.

        Raises:
            ValueError: wrappers around ``VecNormalize`` change observations further.
        """
        if not self.normalises_observations or self.normalises_by_itself:
            return observations
        self._check_nothing_above("observations are those of an environment without VecNormalize")
        normalizer = self.get_vec_normalize_env() or self._statistics
        assert normalizer is not None
        return normalizer.normalize_obs(observations)

    def frozen_statistics(self) -> VecNormalize | None:
        """A copy of what normalises observations for the policy, for one who asks the policy itself; ``None``: they are
        as they are.

        Raises:
            ValueError: wrappers around ``VecNormalize`` change observations further.
        """
        normalizer = self.get_vec_normalize_env() or self._statistics
        if normalizer is None or not normalizer.norm_obs:
            return None
        self._check_nothing_above("observations are those of an environment without VecNormalize")
        return detached(normalizer.state_dict())

    @property
    def layers_above(self) -> tuple[str, ...]:
        """Names of the wrappers that change observations after ``VecNormalize``, the outermost first."""
        return self._above if self.get_vec_normalize_env() is None else above_normalisation(self.get_env()).observations

    def _check_nothing_above(self, what: str, besides: str = "") -> None:
        if above := [name for name in self.layers_above if name != besides]:
            raise ValueError(
                f"{what}, but the model learned from observations that {above[0]} changed after VecNormalize, and that "
                f"cannot be repeated here. Use an environment that is wrapped alike, {above[0]}(VecNormalize(...)), or "
                f"train with VecNormalize around {above[0]}."
            )

    def _advise_on_new_scale(self, normalizer: VecNormalize | None) -> None:
        """Warn if a model that has learned from observations as they are is to see them normalised."""
        if normalizer is not None and normalizer.norm_obs and self.num_timesteps > 0:
            advise(
                "normalisation of what was learned without",
                f"the model has learned for {self.num_timesteps} steps from observations that were not normalised, and "
                "env normalises them: what it sees has another scale now. Pass env without VecNormalize, or with "
                "norm_obs=False.",
            )

    def _as_learned(self, observation: Any) -> Any:
        """An observation as the policy learned from it, also where there is no environment to normalise it.

        One of another kind than the statistics is left as it is, for the policy to refuse.
        """
        statistics = self._statistics
        if not self.normalises_by_itself:
            if self._above and self.env is None and self.predicts_raw:
                advise(
                    "observations of the whole stack of wrappers",
                    f"the model learned from observations that {self._above[0]} changed after VecNormalize: without an "
                    f"environment, predict() takes them as {self._above[0]}(VecNormalize(...)) returns them.",
                )
            return observation
        assert statistics is not None
        if isinstance(statistics.obs_rms, dict):
            fits = isinstance(observation, Mapping) and statistics.obs_rms.keys() <= observation.keys()
            return statistics.normalize_obs(dict(observation)) if fits else observation
        if statistics.obs_rms is None or isinstance(observation, tuple | Mapping):
            return observation
        shape = statistics.obs_rms.mean.shape
        observation = np.asarray(observation)
        if observation.shape[observation.ndim - len(shape) :] != shape:  # pictures may come channels-last
            observation = maybe_transpose(observation, self.observation_space)
        return statistics.normalize_obs(observation)

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
        normalizer = self.get_vec_normalize_env() or self._statistics
        if normalizer is not None and normalizer.norm_obs:
            what = "an exported graph reads observations of an environment without VecNormalize"
            self._check_nothing_above(what, besides=VecTransposeImage.__name__)
        if channels_last is None:
            turned: Sequence[str | None] = turned_images(self.env)
        else:
            turned = image_keys(self.observation_space) if channels_last else ()
        return Reader(self.observation_space, normalizer, turned)

    # -- files ---------------------------------------------------------------------------------------------------------

    def _description(self) -> dict[str, Any]:
        return {**super()._description(), "n_envs": self.n_envs}

    def _save_state(self, saved: Saved, include: set[str]) -> None:
        super()._save_state(saved, include)
        if self.runner is not None:
            saved.state |= prefixed("runner", self.runner.state())
            self._save_environments(saved, self.runner)
        if (normalizer := self.get_vec_normalize_env() or self._statistics) is not None:
            saved.info["normalizer"], arrays = split_state(normalizer.state_dict())
            if above := self.layers_above:
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
        check_counter("n_envs", saved.info["n_envs"], least=1)
        self.n_envs = int(saved.info["n_envs"])
        acted = saved.state_of("runner")
        self._saved_without_masks = bool(acted) and not any(name.startswith("allowed") for name in acted)
        if "normalizer" in saved.info:
            self._statistics = detached(join_state(saved.info["normalizer"], saved.state_of("normalizer")))
            self._above = tuple(map(str, saved.info.get("above_normalizer", ())))
        if env is not None:
            vec_env = self._with_statistics(self._vectorised(env))
            check_for_correct_spaces(vec_env, self.observation_space, self.action_space)
            self._use_env(vec_env)

    def _go_on(self, saved: Saved, resume: bool, force_reset: bool) -> None:
        super()._go_on(saved, resume, force_reset)
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
