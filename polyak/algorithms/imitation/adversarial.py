"""Adversarial imitation: a model is rewarded for steps that a second network cannot distinguish from demonstrations.

The acting model, the *generator*, is any algorithm that learns from experience, in the user's environment with learned
rewards. The reward network is trained here. The generator collects and learns, then the reward network learns to
distinguish its steps from the demonstrated ones, and so on.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, cast

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from polyak.algorithm import GymEnv, Recipe
from polyak.algorithms import get
from polyak.algorithms.imitation.reward import RewardFunction
from polyak.callbacks.callback import BaseCallback, LoopLocals
from polyak.checkpoint import saved as checkpoint
from polyak.checkpoint.damage import names_file
from polyak.checkpoint.parameters import parameters, saved_parameters, set_parameters
from polyak.checkpoint.saved import Saved, join_state, prefixed, split_state
from polyak.collecting.runner import flat, unflat
from polyak.data import Dataset, EpisodeBuffer, HerReplayBuffer, ReplayBuffer, RolloutBuffer, collect
from polyak.data.step import Step
from polyak.envs import VecEnv, VecLearnedReward, VecTransposeImage, as_vec_env
from polyak.envs.composed import is_composed
from polyak.envs.spaces import SpaceError, check_for_correct_spaces, maybe_transpose
from polyak.envs.wrappers.learned_reward import beneath_normalisation, rewarded
from polyak.experience.arrays import mapped
from polyak.hyperparameters.changing import Fixed, NewModel, Reload, WithNetworks
from polyak.hyperparameters.declaration import Becomes, Count, NonNegative, Only, Rate, later, require
from polyak.kinds.asynchronous import AsynchronousAlgorithm
from polyak.kinds.network_algorithm import NetworkAlgorithm
from polyak.kinds.off_policy import OffPolicyAlgorithm
from polyak.kinds.offline import OfflineAlgorithm
from polyak.kinds.on_policy import OnPolicyAlgorithm
from polyak.learning.learner import OptimizerRecipe
from polyak.loops.training import Loop, engine_checks
from polyak.loops.updates import record_means
from polyak.nn.distributions.choice import SINGLE_SPACES
from polyak.nn.export.ports import Graph
from polyak.schedules import Schedule, value_of
from polyak.warning import advise

OFF_POLICY_ROUND = 500
"""Environment steps between two rounds where the generator's loop has no rollouts."""
_OWN = ("policy", "env", "demonstrations")
Arguments = Annotated[dict[str, Any], Only("a dict of arguments", lambda d: all(isinstance(key, str) for key in d))]


class Comparison(NamedTuple):
    """A minibatch: B / 2 demonstrated steps, then B / 2 of the generator's."""

    observations: Any
    """[B, ...] raw, or a dict of these."""
    actions: Tensor
    """[B, ...] in the environment's units."""
    next_observations: Any
    """[B, ...] raw, or a dict of these; None where they are not read."""
    terminated: Tensor
    """[B] float32, 1 where the next state is terminal."""
    expert: Tensor
    """[B] float32, 1 for demonstrated steps."""
    log_probs: Tensor
    """[B] log-densities of the actions by the present generator, where they are needed; else 0."""


Penalty = Literal["interpolated", "expert"]


class ImitationLoop:
    """Lets a generator act and learn, and improves the reward round by round.

    Args:
        model: owns the generator.
        callback: of the model.
        log_interval: of the generator.
    """

    def __init__(self, model: Any, callback: BaseCallback, log_interval: int | None) -> None:
        self.model, generator = model, model.generator
        model.renew_schedules()
        if isinstance(generator, OnPolicyAlgorithm):
            generator.rewards_follow = model._settle
        self.generating: Loop = type(generator).loop(generator, model._relay, log_interval)
        self.between = engine_checks(model)

    def iterate(self) -> bool:
        """An iteration of the generator, and a round where one is due. False: a callback asked to stop."""
        model, clock = self.model, self.model.clock
        going = self.generating.iterate()
        model._follow_generator()
        if going and clock.steps - model._round_began >= model._round:
            model._round_began = clock.steps
            model._improve_reward()
        if going:
            for check in self.between:
                check()
        return going


@dataclass(eq=False, repr=False)
class AdversarialImitation(NetworkAlgorithm):
    """Algorithms that learn a reward from demonstrations, and an actor from that reward.

    ``learn`` counts environment steps. Logged returns of episodes are those of the environment's own rewards, which
    nothing learns from; returns of the learned reward are ``rollout/ep_learned_rew_mean``.
    """

    learning_rate: Rate | Schedule = 1e-3
    """Step size of the reward network's optimizer: a number, or a function of the remaining progress (1 at the start,
    0 at the end). That of the generator stands in ``generator_kwargs``."""
    _: KW_ONLY
    demonstrations: Dataset | None = None
    """The demonstrations. Their rewards are not read; a model that only predicts needs none, and files hold none."""
    generator: NewModel[Becomes[str | type[NetworkAlgorithm], Any]] = later("ppo")
    """The algorithm that learns from the learned reward: a name or a class of an algorithm that acts; afterwards the
    model itself, whose environment is yours with learned rewards."""
    generator_kwargs: Annotated[
        Arguments | None, Fixed("set it on model.generator, such as model.generator.batch_size = 64.")
    ] = None
    """Arguments of the generator besides policy, environment, ``policy_kwargs``, ``device``, ``seed`` and similar ones,
    which are those of this model."""
    demo_batch_size: Count = 256
    """Demonstrated steps in one minibatch of the reward network, with as many of the generator's."""
    n_disc_updates_per_round: Count = 8
    """Gradient steps of the reward network in a round."""
    steps_per_round: Reload[Count | None] = None
    """Environment steps between two rounds; ``None``: one rollout of a generator that has rollouts, else 500."""
    experience_size: Reload[Count | None] = None
    """Number of the generator's latest steps from which minibatches are drawn; ``None``: those of one round."""
    use_state: WithNetworks[bool] = True
    """Whether the reward depends on the state."""
    use_action: WithNetworks[bool] = True
    """Whether it depends on the action."""
    use_next_state: WithNetworks[bool] = False
    """Whether it depends on the next state."""
    use_done: WithNetworks[bool] = False
    """Whether it depends on whether the next state is terminal."""
    reward_kwargs: WithNetworks[Arguments | None] = None
    """Further arguments of the reward network (``net_arch``, ``activation_fn``, ``features_extractor_class``,
    ``normalize_inputs`` ...): see :class:`~polyak.nn.networks.rewards.RewardNet`."""
    gradient_penalty: NonNegative = 1.0
    """Weight of a penalty on the gradient of the reward network by its inputs; 0 computes none. Without it the network
    soon separates all steps, and its reward gives the generator no direction."""
    penalty: Penalty = "interpolated"
    """Where the gradient is penalised: between demonstrated and generated steps, for its norm's distance from 1
    (WGAN-GP, arXiv:1704.00028), or at demonstrated steps, for its squared norm (R1, arXiv:1801.04406)."""

    loop: ClassVar[Callable[..., Loop]] = ImitationLoop
    action_spaces: ClassVar[tuple[type[spaces.Space], ...]] = SINGLE_SPACES
    saves_also: ClassVar[frozenset[str]] = frozenset({"replay_buffer"})
    kept: ClassVar[Mapping[str, str]] = {"round_began": "_round_began"}
    steps_environments: ClassVar[bool] = False
    generator_class = cast(Any, NetworkAlgorithm)
    experience = cast("ReplayBuffer | None", None)
    """The generator's latest steps, actions in the environment's units."""
    _rewarding = cast("VecLearnedReward | None", None)
    _round_began = 0
    """Environment steps when the last round was over."""

    # -- what an algorithm writes --------------------------------------------------------------------------------------

    @property
    def reward(self) -> RewardFunction:
        """The learned reward, for :func:`~polyak.envs.with_reward`. It changes while the model learns."""
        raise NotImplementedError

    def _rewards(self, observations: Any, actions: Any, next_observations: Any, terminated: Any) -> np.ndarray:
        """The generator's rewards [B], of observations and actions in the environment's units."""
        return self.reward(observations, actions, next_observations, terminated)

    def _log_probs(self, observations: Any, actions: np.ndarray) -> Tensor:
        """[B] log-densities by the generator, where the learner needs them."""
        return torch.zeros(len(actions))

    # -- construction --------------------------------------------------------------------------------------------------

    def _read_arguments(self) -> None:
        super()._read_arguments()
        self._generator_choice, self.generator = self.generator, cast(Any, None)

    @classmethod
    def trial(cls) -> dict[str, Any]:
        demonstrations = collect("CartPole-v1", None, 100, seed=0)
        small = {"generator_kwargs": {"n_steps": 64, "batch_size": 32, "n_epochs": 2}, "demo_batch_size": 16}
        return {**super().trial(), "env": "CartPole-v1", "demonstrations": demonstrations, **small}

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        if isinstance(self.generator, NetworkAlgorithm):  # that has been made, and does not change
            return
        chosen = cast("str | type[Any]", self.generator)
        found = get(chosen) if isinstance(chosen, str) else chosen
        able = issubclass(found, OnPolicyAlgorithm | OffPolicyAlgorithm) and not issubclass(found, OfflineAlgorithm)
        fix = "it must be an algorithm that learns by acting, such as 'ppo', 'sac' or 'dqn'."
        require(able, "generator", self.generator, fix)
        self.generator_class = found
        setattr(self, "policies", found.policies)  # noqa: B010  # of the class, which those of the generator replace
        options = self.generator_kwargs or {}
        for name in options.keys() & {"policy", "env", "policy_kwargs", "device", "compile", "precision", "seed"}:
            fix = f"give {name} as an argument of {type(self).__name__}."
            require(False, f"generator_kwargs[{name!r}]", options[name], fix)
        buffer_class = options.get("replay_buffer_class")
        fix = "hindsight replay asks the environment for rewards, and not what was learned. Leave it out."
        hindsight = isinstance(buffer_class, type) and issubclass(buffer_class, HerReplayBuffer)
        require(not hindsight, "generator_kwargs['replay_buffer_class']", buffer_class, fix)
        fix = "what is learned changes the rewards of stored steps, which must be here. Leave it out."
        require(not options.get("n_replay_shards"), "n_replay_shards", options.get("n_replay_shards"), fix)
        ahead = issubclass(found, AsynchronousAlgorithm) and options.get("asynchronous", True)
        fix = "its actor would be ahead of the rewards that are learned. Add generator_kwargs={'asynchronous': False}."
        require(not ahead, "generator", self.generator, fix)

    def _generator_options(self) -> dict[str, Any]:
        shared = ("policy_kwargs", "compile", "precision", "seed", "verbose", "stats_window_size")
        options = {name: getattr(self, name) for name in shared}
        return {**options, "device": self._device_name, **(self.generator_kwargs or {})}

    def _attach_env(self, env: Any) -> None:
        """Make the generator that acts in ``env``."""
        vec_env = as_vec_env(env, verbose=self.verbose)
        self._check_spaces(vec_env)
        options = {**self._generator_options(), "_init_setup_model": False}
        self._own(self.generator_class(self._policy_name, self._with_learned_reward(vec_env), **options))
        self.env = vec_env
        self._check_demonstrations()

    def _own(self, generator: NetworkAlgorithm) -> None:
        """Attach the generator to this model."""
        self.generator = cast(Any, generator)
        self.n_envs, self.normalisation = generator.n_envs, generator.normalisation
        self._share_statistics()
        self.observation_space, self.action_space = generator.observation_space, generator.action_space

    def _with_learned_reward(self, env: VecEnv) -> VecEnv:
        """The user's environment with learned rewards."""

        def wrap(venv: VecEnv) -> VecEnv:
            self._rewarding = VecLearnedReward(venv, self._rewards, self._keep_step)
            return self._rewarding

        return rewarded(env, wrap)

    def _check_spaces(self, env: VecEnv) -> None:
        if is_composed(env.action_space):
            raise SpaceError(
                f"{type(self).__name__} does not support the action space {env.action_space}: datasets hold no actions "
                "of composed spaces. Wrap the environment."
            )
        if beneath_normalisation(env).observation_space != env.observation_space:
            raise SpaceError(
                f"VecNormalize makes {env.observation_space} of {beneath_normalisation(env).observation_space}, but "
                "demonstrations are compared before normalisation. Use norm_obs=False."
            )

    def _check_demonstrations(self) -> None:
        data = self.demonstrations
        if data is None:
            return
        for what in ("observation_space", "action_space"):
            theirs, ours = getattr(data, what), getattr(self, what)
            if theirs != ours and not (what == "observation_space" and _transposed(theirs, ours)):
                raise SpaceError(
                    f"demonstrations have {what}={theirs}, but the environment has {ours}. Use "
                    "demonstrations.for_env(env) with the environment."
                )

    def _setup_model(self) -> None:
        if self.generator is not None:
            self.generator._setup_model()
            self.generator._check_built()
        super()._setup_model()
        if self.env is not None:
            self._make_experience()

    def _after_setup(self) -> None:
        super()._after_setup()
        if self.generator is not None:
            self.policy = self.generator.policy

    def _make_experience(self) -> None:
        """Make the buffer of the generator's steps."""
        size = max(self.experience_size or self._round, self.n_envs)
        self.experience = ReplayBuffer(size, self.observation_space, self.action_space, "cpu", self.n_envs)

    def _adopt(self, name: str, before: Any) -> None:
        super()._adopt(name, before)
        if name == "demonstrations":
            self._check_demonstrations()
        if name in ("verbose", "stats_window_size"):
            setattr(self.generator, name, getattr(self, name))
            self._share_statistics()

    def _share_statistics(self) -> None:
        """Episodes of the generator are those of this model."""
        self.generator._split, self.generator.ep_info_buffer = self._split, self.ep_info_buffer
        self.generator.ep_success_buffer = self.ep_success_buffer

    @property
    def _round(self) -> int:
        """Environment steps between two rounds."""
        if self.steps_per_round is not None:
            return self.steps_per_round
        model = self.generator
        return model.n_steps * model.n_envs if isinstance(model, OnPolicyAlgorithm) else OFF_POLICY_ROUND

    def _network_arguments(self) -> dict[str, Any]:
        """Arguments of the reward network besides its spaces."""
        return {
            "use_state": self.use_state,
            "use_action": self.use_action,
            "use_next_state": self.use_next_state,
            "use_done": self.use_done,
            **(self.reward_kwargs or {}),
        }

    def make_optimizer(self) -> OptimizerRecipe:
        """The reward network's: Adam. That of ``policy_kwargs`` is the generator's."""
        return OptimizerRecipe(torch.optim.Adam)

    def _expected_updates(self, timesteps: int) -> tuple[int, int]:
        if self.generator is None:
            return 0, 1
        return timesteps // self._round * self.n_disc_updates_per_round, 2 * self.demo_batch_size

    # -- environments --------------------------------------------------------------------------------------------------

    def set_env(self, env: GymEnv | Recipe, force_reset: bool = True) -> None:
        """Continue with another environment of the same spaces; see :meth:`Algorithm.set_env`.

        Args:
            env: the new environment.
            force_reset: start new episodes at the next ``learn``; ``False`` continues from the last observations.

        Raises:
            ValueError: the spaces or the number of environments differ.
        """
        vec_env = self.generator._with_statistics(self._vectorised(env))
        self._check_spaces(vec_env)
        old, asked = self._rewarding, self._with_learned_reward(vec_env)
        new, self._rewarding = self._rewarding, old
        self.generator.set_env(asked, force_reset)
        self._put(env=vec_env)
        self._rewarding = new
        if old is not None and new is not None and not force_reset:
            new.resume(old._before)
        if self.experience is None:
            self._make_experience()

    def _seed(self, seed: int) -> None:
        super()._seed(seed)
        if self.generator is not None and self.env is not None:
            self.env.seed(seed)

    # -- the loop ------------------------------------------------------------------------------------------------------

    def _check_ready(self) -> None:
        super()._check_ready()
        name = type(self).__name__
        if self.env is None:
            raise ValueError(f"env=None: this model has no environment. Pass one: `{name}.load(path, env=...)`.")
        if self.demonstrations is None:
            raise ValueError(
                f"demonstrations=None: there is nothing to imitate. Pass a Dataset: `{name}.load(path, env=..., "
                "demonstrations=...)`."
            )
        self._check_demonstrations()

    def _setup_learn(self, *args: Any, **kwargs: Any) -> tuple[int, BaseCallback]:
        total, callback = super()._setup_learn(*args, **kwargs)
        reset = self.num_timesteps == 0
        self.generator.set_logger(self.logger)
        self.generator._setup_learn(total - self.num_timesteps, None, reset)
        if reset:
            self._round_began = 0
        self._relay = Relay(self, callback)
        return total, callback

    @contextmanager
    def _while_learning(self) -> Iterator[None]:
        with super()._while_learning(), self.generator._while_learning():
            yield

    def _follow_generator(self) -> None:
        """Copy the generator's counters."""
        for name in ("num_timesteps", "_episode_num", "_current_progress_remaining"):
            setattr(self, name, getattr(self.generator, name))

    def _keep_step(self, before: Any, actions: Any, successors: Any, terminated: Any, dones: Any) -> None:
        """Store a step of the generator."""
        assert self.experience is not None
        zeros, cut = np.zeros(self.n_envs, np.float32), dones & ~terminated
        ended = bool(dones.any())
        infos: list[dict[str, Any]] = [{}] * self.n_envs
        self.experience.record(
            Step(before, actions, actions, zeros, successors, terminated, cut, dones, infos, successors, dones, ended)
        )

    def _rewards_may_follow(self, callback: BaseCallback) -> bool:
        """Whether no callback reads the rewards of single steps, so that those of a rollout can be computed at once:
        the networks do not change meanwhile, and the numbers are the same."""
        model = self.generator
        if not isinstance(model, OnPolicyAlgorithm) or isinstance(model.rollout_buffer, EpisodeBuffer):
            return False
        plain = model.env is self._rewarding and model.rollout_buffer.values_may_follow
        return plain and not callback.needs_locals

    def _begin_rollout(self, callback: BaseCallback) -> None:
        assert self._rewarding is not None
        self._rewarding.late, self._rewarding.waiting = self._rewards_may_follow(callback), []

    def _settle(self, buffer: RolloutBuffer) -> None:
        """Fill in the rewards of the latest steps of a rollout."""
        assert self._rewarding is not None
        if len(rewards := self._rewarding.settle()):
            buffer.rewards[buffer.pos - len(rewards) : buffer.pos] = rewards

    def _show_rewards(self) -> None:
        """Before a file is written in the middle of a rollout, whose last step may not be stored yet: fill in the
        rewards of its steps, and change nothing else."""
        collection = None if self.generator is None else self.generator._collection
        if self._rewarding is None or collection is None or not len(rewards := self._rewarding.owed()):
            return
        buffer: Any = getattr(self.generator, "rollout_buffer")  # noqa: B009  # of those whose rewards may follow
        stored = len(rewards)
        if collection.pending is not None:
            stored -= 1
            collection.pending = collection.pending._replace(rewards=rewards[-1])
        buffer.rewards[buffer.pos - stored : buffer.pos] = rewards[:stored]

    def _improve_reward(self) -> None:
        """A round: some gradient steps of the reward network, and new rewards of stored steps."""
        remaining = self.clock.remaining
        rate = value_of(
            "learning_rate", self.lr_schedule, remaining
        )  # is logged by the round, under a name that the generator does not use
        moving = {name: schedule(remaining) for name, schedule in self.schedules.moving.items()}
        self.learner.set(learning_rate=rate, **moving)
        metrics: dict[str, list[Tensor]] = {}
        for _ in range(self.n_disc_updates_per_round):
            with self._split.sample:
                batch = self._comparison()
            with self._split.update:
                update = self.learner.update(batch)
            for name, value in update.metrics.items():
                metrics.setdefault(name, []).append(value)
        self._n_updates += self.n_disc_updates_per_round
        buffer = getattr(self.generator, "replay_buffer", None)
        if buffer is not None:
            with self._split.update:
                buffer.replace_rewards(self._rewards_of_stored)
        self._record_round(metrics, rate)

    def _rewards_of_stored(self, observations: Any, actions: np.ndarray, then: Any, terminated: Any) -> np.ndarray:
        """:meth:`_rewards` of rows of a replay buffer, whose actions are in the network's units."""
        codec = self.policy.codec
        taken = codec.to_env(actions.reshape(-1, *codec.shape))
        return self._rewards(self._of_space(observations), taken, self._of_space(then), terminated)

    def _warn_of_lengths(self) -> None:
        """Warn where episodes have different lengths: a reward of constant sign is then maximised by length alone."""
        demonstrations = cast(Dataset, self.demonstrations)
        shown = set(demonstrations.lengths[demonstrations.terminated].tolist())
        met = {int(episode["l"]) for episode in self.ep_info_buffer}
        for whose, lengths in (("demonstrated episodes", shown), ("the generator's episodes", met)):
            if len(lengths) > 1:
                advise(
                    "episodes of varying length",
                    f"{type(self).__name__}: {whose} last from {min(lengths)} to {max(lengths)} steps. Length alone "
                    "can earn the learned reward, so a good score may prove little (arXiv:1809.02925). Wrap the "
                    "environment in polyak.envs.FixedHorizon(env, steps), for the demonstrations too.",
                )

    def _record_round(self, metrics: Mapping[str, list[Tensor]], rate: float) -> None:
        record_means(metrics, self.logger, self.host)
        self._warn_of_lengths()
        self.logger.record("train/disc_learning_rate", rate)
        self.logger.record("train/disc_n_updates", self._n_updates, exclude="tensorboard")
        assert self._rewarding is not None
        if ended := self._rewarding.ended:
            self.logger.record("rollout/ep_learned_rew_mean", float(np.mean(ended)))
            ended.clear()

    # -- minibatches ---------------------------------------------------------------------------------------------------

    def _comparison(self) -> Comparison:
        """A minibatch with as many demonstrated steps as steps of the generator."""
        assert self.demonstrations is not None
        assert self.experience is not None
        size, network = self.demo_batch_size, cast(Any, self.learner.policy)
        shown = self.demonstrations.transitions(torch.randint(len(self.demonstrations), (size,)).numpy())
        filled = self.experience.size() * self.n_envs
        made = self.experience.storage.read(torch.randint(filled, (size,)).numpy())
        seen = _joined(self._of_space(shown.observations), self._of_space(made["observations"]))
        shape = (-1, *(self.action_space.shape or ()))
        actions = np.concatenate([np.reshape(shown.actions, shape), np.reshape(made["actions"], shape)])
        ends = np.concatenate([shown.terminations, made["dones"] * (1 - made["timeouts"])]).astype(np.float32)
        then = None
        if network.needs_next:
            then = _joined(self._of_space(shown.next_observations), self._of_space(made["next_observations"]))
            then = network.obs_to_tensor(then)[0]
        return Comparison(
            network.obs_to_tensor(seen)[0],
            torch.as_tensor(actions, device=self.device),
            then,
            torch.as_tensor(ends, device=self.device),
            torch.arange(2 * size, device=self.device).lt(size).float(),
            self._log_probs(seen, actions).to(self.device),
        )

    def _of_space(self, observations: Any) -> Any:
        """Observations [B, ...] in the shape that the environment gives them."""
        space: Any = self.observation_space
        if isinstance(observations, dict):
            return {k: np.reshape(observations[k], (-1, *(s.shape or ()))) for k, s in space.spaces.items()}
        observations = maybe_transpose(observations, space)
        return np.reshape(observations, (-1, *(space.shape or ())))

    # -- predicting, parameters and files ------------------------------------------------------------------------------

    def predict(
        self,
        observation: Any,
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
        *,
        action_masks: np.ndarray | None = None,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        """The generator's action; see :meth:`NetworkAlgorithm.predict`."""
        return self.generator.predict(observation, state, episode_start, deterministic, action_masks=action_masks)

    def acting_graph(
        self, masks: bool | None = None, channels_last: bool | None = None, stochastic: bool = False
    ) -> Graph:
        """The generator's; see :meth:`NetworkAlgorithm.acting_graph`."""
        return self.generator.acting_graph(masks, channels_last, stochastic)

    def get_parameters(self) -> dict[str, Any]:
        """Those of the generator, and ``"reward"`` and ``"reward.optimizer"`` of the reward network."""
        own = parameters(self.learner)
        names = {"policy": "reward", "reward.optimizer": "reward.optimizer"}
        return {**self.generator.get_parameters(), **{names[name]: value for name, value in own.items()}}

    @names_file
    def set_parameters(
        self, load_path_or_dict: Any, exact_match: bool = True, device: torch.device | str = "auto"
    ) -> None:
        """Load weights into this model, in place; see :meth:`NetworkAlgorithm.set_parameters`."""
        values = load_path_or_dict
        if not isinstance(values, Mapping):
            saved = checkpoint.read(values, weights_only=True)
            values = {
                **saved_parameters(saved.part("generator")),
                **_reward_parts(saved_parameters(saved.without("generator"))),
            }
        own = {"policy": values["reward"]} if "reward" in values else {}
        if "reward.optimizer" in values:
            own["reward.optimizer"] = values["reward.optimizer"]
        others = {name: value for name, value in values.items() if not name.startswith("reward")}
        self.generator.set_parameters(others, exact_match, device)
        set_parameters(self.learner, own, exact_match)

    def hyperparameters(self) -> dict[str, Any]:
        values = {name: value for name, value in super().hyperparameters().items() if name not in _OWN}
        return values | {"generator": self._generator_choice}

    def _save_state(self, saved: Saved, include: set[str]) -> None:
        super()._save_state(saved, include)
        self._show_rewards()
        saved.put("generator", checkpoint.taken(self.generator, include=include & self.generator.saves_also))
        if self._rewarding is not None:
            seen = {"returns": self._rewarding.returns, "ended": np.array(self._rewarding.ended)}
            last = {**seen, **flat("before", self._rewarding._before)}
            saved.state |= prefixed("runner/rewarding", last)
        if "replay_buffer" in include and self.experience is not None:
            saved.info["experience"], arrays = split_state(self.experience.state_dict())
            saved.replay |= prefixed("experience", arrays)

    def _save_statistics(self, saved: Saved) -> None:
        """Nothing: they are in the generator's part."""

    def _enter(self, saved: Saved, env: Any) -> None:
        part = saved.part("generator")
        options = {name: value for name, value in self._generator_options().items() if name != "device"}
        generator = self.generator_class._unbuilt(self._policy_name, self._device_name, options)
        generator.observation_space, generator.action_space = self.observation_space, self.action_space
        generator._enter(part, None)
        if env is not None:
            vec_env = generator._with_statistics(as_vec_env(env, verbose=self.verbose))
            self._check_spaces(vec_env)
            check_for_correct_spaces(vec_env, self.observation_space, self.action_space)
            generator._use_env(self._with_learned_reward(vec_env))
            self.env = vec_env
        self._own(generator)
        self._check_demonstrations()

    def _load_state(self, saved: Saved) -> None:
        checkpoint.restore(self.generator, saved.part("generator"))
        self.ep_info_buffer.clear()  # which both have, and which are in the file twice
        self.ep_success_buffer.clear()
        super()._load_state(saved.without("generator"))

    def _resume(self, saved: Saved, resume: bool, force_reset: bool) -> None:
        super()._resume(saved, resume, force_reset)
        self.generator._resume(saved.part("generator"), resume, force_reset)
        last, runner = saved.state_of("runner/rewarding"), self.generator.runner
        if self._rewarding is not None and last and runner is not None and runner.obs is not None:
            self._rewarding.returns = last["returns"].copy()
            self._rewarding.ended = last.get("ended", np.zeros(0)).tolist()
            self._rewarding.resume(unflat("before", last))
        if resume and self.experience is not None and "experience" in saved.info:
            arrays = checkpoint.beneath(saved.replay, "experience")
            self.experience.load_state_dict(join_state(saved.info["experience"], arrays))


class Relay(BaseCallback):
    """Forwards the generator's steps to the callbacks of the model that owns it.

    Args:
        owner: of the generator.
        callback: of the owner.
    """

    def __init__(self, owner: AdversarialImitation, callback: BaseCallback) -> None:
        super().__init__()
        self.owner, self.callback = owner, callback

    @property
    def needs_locals(self) -> bool:
        return self.callback.needs_locals

    @property
    def is_idle(self) -> bool:
        return self.callback.is_idle

    def update_locals(self, locals_: dict[str, Any]) -> None:
        names = {**locals_, "self": self.owner}
        self.callback.update_locals(LoopLocals(names, locals_.later) if isinstance(locals_, LoopLocals) else names)

    def on_rollout_start(self) -> None:
        self.owner._begin_rollout(self.callback)
        self.callback.on_rollout_start()

    def on_rollout_end(self) -> None:
        self.owner._follow_generator()
        self.callback.on_rollout_end()

    def on_step(self) -> bool:
        self.owner._follow_generator()
        return self.callback.on_step()

    def _on_step(self) -> bool:
        return True


def _joined(*observations: Any) -> Any:
    """Observations one after another."""
    return mapped(lambda *parts: np.concatenate(parts), *observations)


def _transposed(theirs: Any, ours: Any) -> bool:
    """Whether channels-last images of one space are those of the other with channels first."""
    try:
        return ours == VecTransposeImage.transpose_space(theirs)
    except ValueError:
        return False


def _reward_parts(values: Mapping[str, Any]) -> dict[str, Any]:
    return {"reward" if name == "policy" else name: value for name, value in values.items()}
