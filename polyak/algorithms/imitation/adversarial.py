"""Adversarial imitation: a policy is rewarded for steps that a discriminator cannot distinguish from demonstrations.

The acting model, the *generator*, is any algorithm that learns online, in the user's environment with learned rewards.
The reward network is trained here. The generator collects and learns, then the reward network learns to distinguish its
steps from demonstrations, repeatedly.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from typing_extensions import Self

from polyak.algorithm import Algorithm, GymEnv, Recipe
from polyak.algorithms import get
from polyak.algorithms.imitation.reward import RewardFunction
from polyak.algorithms.imitation.rounds import OFF_POLICY_ROUND, ImitationLoop
from polyak.arrays import flat, under, unflat
from polyak.callbacks.callback import BaseCallback
from polyak.checkpoint import saved as checkpoint
from polyak.checkpoint.damage import names_file
from polyak.checkpoint.parameters import parameters, restore, saved_parameters, set_parameters, store
from polyak.checkpoint.saved import Saved, join_state, prefixed, split_state
from polyak.checkpoint.serialise import encode
from polyak.envs import VecEnv, VecLearnedReward, VecTransposeImage
from polyak.envs.nested_spaces import is_composed
from polyak.envs.spaces import SpaceError, check_for_correct_spaces
from polyak.envs.wrappers.learned_reward import beneath_normalisation, rewarded
from polyak.experience import Dataset, HerReplayBuffer, ReplayBuffer
from polyak.experience.step import Step
from polyak.fields.asynchronous import AsynchronousAlgorithm
from polyak.fields.off_policy import OffPolicyAlgorithm
from polyak.fields.offline import OfflineAlgorithm
from polyak.fields.on_policy import OnPolicyAlgorithm
from polyak.hyperparameters.changing import Fixed, NewModel, Reload, WithNetworks
from polyak.hyperparameters.declaration import Becomes, Count, LearningRate, NonNegative, Only, later, require
from polyak.hyperparameters.held import Held
from polyak.learning.engine.engine import Engine
from polyak.learning.host import LearnerHost, Load
from polyak.learning.learner import Learner, LearnerRecipe, OptimizerRecipe
from polyak.loops.training import Loop
from polyak.network_algorithm import Compiled, NetworkAlgorithm, OnDevice, Precision
from polyak.nn.distributions.choice import SINGLE_SPACES
from polyak.nn.policies.base import Policy
from polyak.parts.part import KeptWithExperience, MadeOf, Through
from polyak.schedules import get_schedule_fn, value_of

_OWN = ("policy", "env", "demonstrations")
Arguments = Annotated[dict[str, Any], Only("a dict of arguments", lambda d: all(isinstance(key, str) for key in d))]


Penalty = Literal["interpolated", "expert"]


@dataclass(eq=False, repr=False)
class AdversarialImitation(Algorithm):
    """Base class of algorithms that learn a reward from demonstrations, and a policy from that reward.

    ``learn`` counts environment steps. Logged returns are those of the environment's own rewards, which are not used
    for training; returns of the learned reward are ``rollout/ep_learned_rew_mean``.
    """

    policy: Becomes[str | type[Policy], Policy] = later()
    """The generator's policy: ``"MlpPolicy"``, ``"CnnPolicy"``, ``"MultiInputPolicy"`` or a policy class; after
    construction the policy itself."""
    env: Becomes[GymEnv | Recipe | None, VecEnv | None] = later()
    """An environment, a vector of environments, or a registered name; ``None`` for a model that only predicts. After
    construction the vectorised environment with every wrapper."""
    learning_rate: LearningRate = 1e-3
    """Learning rate of the reward network: a number, or a function of the remaining progress (1 at the start, 0 at the
    end). That of the generator is in ``generator_kwargs``."""
    _: KW_ONLY
    policy_kwargs: WithNetworks[dict[str, Any] | None] = None
    """Arguments of the generator's policy and of its optimizer."""
    device: OnDevice = later("auto")
    """``"cpu"``, ``"cuda"`` or another torch device, for the generator and the reward network; ``"auto"`` takes the one
    that should be faster for the generator."""
    compile: Compiled = "auto"
    """Run gradient steps of both as compiled programs, with equal results up to rounding. ``"auto"`` does so in long
    runs, ``True`` always, or fails; ``False`` never."""
    precision: Precision = "float32"
    """``"bfloat16"`` computes layers in half precision during gradient steps. Useful for large networks on a GPU."""
    demonstrations: Dataset | None = None
    """The demonstrations; their rewards are not used. A model that only predicts needs none, and files do not hold
    them."""
    generator: NewModel[Becomes[str | type[NetworkAlgorithm], Any]] = later("ppo")
    """The algorithm that learns from the learned reward: a name or a class of an online algorithm; after construction
    the model itself, whose environment is the user's with learned rewards."""
    generator_kwargs: Annotated[
        Arguments | None, Fixed("set it on model.generator, such as model.generator.batch_size = 64.")
    ] = None
    """Arguments of the generator, except policy, environment, ``policy_kwargs``, ``device``, ``seed`` and similar ones,
    which are shared with this model."""
    demo_batch_size: Count = 256
    """Demonstrations per minibatch of the reward network, with as many steps of the generator."""
    n_disc_updates_per_round: Count = 8
    """Gradient steps of the reward network per round."""
    steps_per_round: Reload[Count | None] = None
    """Environment steps between two rounds; ``None``: one rollout of an on-policy generator, otherwise 500."""
    experience_size: Reload[Count | None] = None
    """Number of the generator's latest steps that minibatches are drawn from; ``None``: those of one round."""
    use_state: WithNetworks[bool] = True
    """Whether the reward depends on the state."""
    use_action: WithNetworks[bool] = True
    """Whether the reward depends on the action."""
    use_next_state: WithNetworks[bool] = False
    """Whether the reward depends on the next state."""
    use_done: WithNetworks[bool] = False
    """Whether the reward depends on the next state being terminal."""
    reward_kwargs: WithNetworks[Arguments | None] = None
    """Further arguments of the reward network (``net_arch``, ``activation_fn``, ``features_extractor_class``,
    ``normalize_inputs`` ...): see :class:`~polyak.nn.networks.rewards.RewardNet`."""
    gradient_penalty: NonNegative = 1.0
    """Weight of a penalty on the reward network's gradient with respect to its inputs; 0: none. Without it the network
    soon separates all steps, and its reward gives the generator no direction."""
    penalty: Penalty = "interpolated"
    """The gradient penalty: squared distance of the norm from 1 between demonstrated and generated steps (WGAN-GP,
    arXiv:1704.00028), or squared norm at demonstrations (R1, arXiv:1801.04406)."""

    loop: ClassVar[Callable[..., Loop]] = ImitationLoop
    action_spaces: ClassVar[tuple[type[spaces.Space], ...]] = SINGLE_SPACES
    made_of: ClassVar[MadeOf] = {"kept": partial(KeptWithExperience, names={"round_began": "_round_began"})}
    learner_class: ClassVar[type[Learner]]
    """The learner class of the reward network."""
    engine = Held[Engine | None]("host.engine")
    """Runs the gradient steps of the reward network as compiled programs."""
    steps_environments: ClassVar[bool] = False
    generator_class = cast(Any, NetworkAlgorithm)
    experience = cast("ReplayBuffer | None", None)
    """The generator's latest steps, actions in the environment's units."""
    _rewarding = cast("VecLearnedReward | None", None)
    _round_began = 0
    """Environment steps at the end of the last round."""

    # -- methods that subclasses override ------------------------------------------------------------------------------

    @property
    def reward(self) -> RewardFunction:
        """The learned reward, for :func:`~polyak.envs.with_reward`. It changes during training."""
        raise NotImplementedError

    def _rewards(self, observations: Any, actions: Any, next_observations: Any, terminated: Any) -> np.ndarray:
        """Returns the generator's rewards [B] of observations and actions in the environment's units."""
        return self.reward(observations, actions, next_observations, terminated)

    def _log_probs(self, observations: Any, actions: np.ndarray) -> Tensor:
        """Returns log-densities [B] under the generator, if the learner needs them, otherwise zeros."""
        return torch.zeros(len(actions))

    # -- construction --------------------------------------------------------------------------------------------------

    def __post_init__(self, _init_setup_model: bool) -> None:
        self._policy_name, self.policy = cast(Any, self.policy), cast(Any, None)
        self._device_name, self._generator_choice = str(self.device), self.generator
        super().__post_init__(_init_setup_model)

    def _read_arguments(self) -> None:
        """Create the generator, without an environment."""
        super()._read_arguments()
        self.policy_kwargs = dict(self.policy_kwargs or {})
        shared = ("policy_kwargs", "compile", "precision", "seed", "verbose", "stats_window_size")
        options = {**{name: getattr(self, name) for name in shared}, **(self.generator_kwargs or {})}
        options["device"] = self._device_name
        generator = self.generator_class(self._policy_name, None, **options, _init_setup_model=False)
        generator._split, generator.statistics = self._split, self.statistics
        self.generator, self.device = cast(Any, generator), generator.device
        self.host = LearnerHost(self.compile, self.precision, print if self.verbose >= 1 else None)
        self.lr_schedule = get_schedule_fn(self.learning_rate)

    def _summary(self) -> dict[str, str]:
        generator = vars(self).get("generator")
        return {**(generator._summary() if isinstance(generator, Algorithm) else {}), **super()._summary()}

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        if isinstance(self.generator, NetworkAlgorithm):  # it has been created, and does not change
            return
        chosen = cast("str | type[Any]", self.generator)
        found = get(chosen) if isinstance(chosen, str) else chosen
        able = issubclass(found, OnPolicyAlgorithm | OffPolicyAlgorithm) and not issubclass(found, OfflineAlgorithm)
        fix = "it must be an algorithm that learns by acting, such as 'ppo', 'sac' or 'dqn'."
        require(able, "generator", self.generator, fix)
        self.generator_class = found
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

    def _attach_env(self, env: Any) -> None:
        vec_env = self._vectorised(env)
        self._check_spaces(vec_env)
        self.generator._attach_env(self._with_learned_reward(vec_env))
        self._act_in(vec_env)

    def _act_in(self, env: VecEnv | None) -> None:
        """Take over spaces and statistics after the generator got ``env`` with learned rewards."""
        generator = self.generator
        self._put(env=env)
        self.n_envs, self.normalisation = generator.n_envs, generator.normalisation
        self.observation_space, self.action_space = generator.observation_space, generator.action_space
        self._check_demonstrations()

    def _with_learned_reward(self, env: VecEnv) -> VecEnv:
        """Returns the user's environment with learned rewards."""

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
        self.generator._setup_model()
        self.generator._check_built()
        self.device = self.generator.device
        super()._setup_model()
        if self.env is not None:
            self._make_experience()

    def make_policy(self) -> Callable[[], Any]:
        """Returns a picklable recipe of the reward network; the generator has the policy."""
        raise NotImplementedError

    def learner_factory(self) -> Callable[[], Learner]:
        """Returns a picklable recipe of the reward network's learner."""
        values = {name: getattr(self, name) for name in self.learner_class.declared_tunables()}
        rate, optimizer = value_of("learning_rate", self.lr_schedule, 1), OptimizerRecipe(torch.optim.Adam)
        return LearnerRecipe(self.learner_class, self.make_policy(), optimizer, rate, values)

    def _build(self) -> None:
        self.learner = self.host.take(self.learner_factory()(), self.device)
        self.policy = self.generator.policy

    def _make_experience(self) -> None:
        """Create the buffer of the generator's steps."""
        size = max(self.experience_size or self._round, self.n_envs)
        self.experience = ReplayBuffer(size, self.observation_space, self.action_space, "cpu", self.n_envs)

    def _adopt(self, name: str, before: Any) -> None:
        super()._adopt(name, before)
        value = getattr(self, name)
        if name == "learning_rate":
            self.lr_schedule = get_schedule_fn(value)
            self.learner.set(learning_rate=value_of(name, self.lr_schedule, self.clock.remaining))
        elif name in self.learner.tunables:
            self.learner.set(**{name: value})
        elif name in self.learner.declared_tunables():
            setattr(self.learner, name, value)
        if name == "demonstrations":
            self._check_demonstrations()
        if name in ("verbose", "stats_window_size"):
            setattr(self.generator, name, value)

    @property
    def _round(self) -> int:
        """Environment steps between two rounds."""
        if self.steps_per_round is not None:
            return self.steps_per_round
        model = self.generator
        return model.n_steps * model.n_envs if isinstance(model, OnPolicyAlgorithm) else OFF_POLICY_ROUND

    def _network_arguments(self) -> dict[str, Any]:
        """Returns the arguments of the reward network except its spaces."""
        used = {
            "use_state": self.use_state,
            "use_action": self.use_action,
            "use_next_state": self.use_next_state,
            "use_done": self.use_done,
        }
        return {**used, **(self.reward_kwargs or {})}

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
        if self.env is not None:
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
        reset, rounds = self.num_timesteps == 0, (total - self.num_timesteps) // self._round
        self.host.expect(Load(rounds * self.n_disc_updates_per_round, 2 * self.demo_batch_size))
        self.generator.set_logger(self.logger)
        self.generator._setup_learn(total - self.num_timesteps, None, reset)
        if reset:
            self._round_began = 0
        return total, callback

    @contextmanager
    def _while_learning(self) -> Iterator[None]:
        with self.host.at_work(self.learner, False), super()._while_learning(), self.generator._while_learning():
            yield

    def _keep_step(self, before: Any, actions: Any, successors: Any, terminated: Any, dones: Any) -> None:
        """Store a step of the generator."""
        assert self.experience is not None
        zeros, cut = np.zeros(self.n_envs, np.float32), dones & ~terminated
        ended = bool(dones.any())
        infos: list[dict[str, Any]] = [{}] * self.n_envs
        self.experience.record(
            Step(before, actions, actions, zeros, successors, terminated, cut, dones, infos, successors, dones, ended)
        )

    def _show_rewards(self) -> None:
        """Fill in the rewards of a partial rollout before a file is written; its last step may not be stored yet."""
        collection = self.generator._collection
        if self._rewarding is None or collection is None or not len(rewards := self._rewarding.owed()):
            return
        buffer: Any = getattr(self.generator, "rollout_buffer")  # noqa: B009  # only rollouts may lack rewards
        stored = len(rewards)
        if collection.pending is not None:
            stored -= 1
            collection.pending = collection.pending._replace(rewards=rewards[-1])
        buffer.rewards[buffer.pos - stored : buffer.pos] = rewards[:stored]

    # -- predicting, parameters and files ------------------------------------------------------------------------------

    predict = Through("generator", NetworkAlgorithm.predict)
    acting_graph = Through("generator", NetworkAlgorithm.acting_graph)

    def get_parameters(self) -> dict[str, Any]:
        """Returns those of the generator, and the reward network's as ``"reward"`` and ``"reward.optimizer"``."""
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
        return values | {"generator": self._generator_choice, "device": self._device_name}

    def _description(self) -> dict[str, Any]:
        policy = self._policy_name
        return {**super()._description(), "policy": policy if isinstance(policy, str) else encode(policy)}

    @classmethod
    def _unbuilt(cls, policy: Any, device: Any, hyperparameters: dict[str, Any]) -> Self:
        return cls(policy, None, **hyperparameters, device=device, _init_setup_model=False)

    def _save_state(self, saved: Saved, include: set[str]) -> None:
        super()._save_state(saved, include)
        store(self.learner, saved)
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
        """Does nothing: statistics are in the generator's part."""

    def _enter(self, saved: Saved, env: Any) -> None:
        generator = self.generator
        generator.observation_space, generator.action_space = self.observation_space, self.action_space
        generator._enter(saved.part("generator"), None)
        if env is not None:
            env = generator._with_statistics(self._vectorised(env))
            self._check_spaces(env)
            check_for_correct_spaces(env, self.observation_space, self.action_space)
            generator._use_env(self._with_learned_reward(env))
        self._act_in(env)

    def _load_state(self, saved: Saved) -> None:
        checkpoint.restore(self.generator, saved.part("generator"))
        self.ep_info_buffer.clear()  # shared by both, so that the file holds them twice
        self.ep_success_buffer.clear()
        super()._load_state(saved)
        restore(self.learner, saved.without("generator"))

    def _resume(self, saved: Saved, resume: bool, force_reset: bool) -> None:
        super()._resume(saved, resume, force_reset)
        self.generator._resume(saved.part("generator"), resume, force_reset)
        last, runner = saved.state_of("runner/rewarding"), self.generator.runner
        if self._rewarding is not None and last and runner is not None and runner.obs is not None:
            self._rewarding.returns = last["returns"].copy()
            self._rewarding.ended = last.get("ended", np.zeros(0)).tolist()
            self._rewarding.resume(unflat("before", last))
        if resume and self.experience is not None and "experience" in saved.info:
            arrays = under("experience", saved.replay)
            self.experience.load_state_dict(join_state(saved.info["experience"], arrays))


def _transposed(theirs: Any, ours: Any) -> bool:
    """Whether one space's channels-last images are the other's channels-first images, transposed."""
    try:
        return ours == VecTransposeImage.transpose_space(theirs)
    except ValueError:
        return False


def _reward_parts(values: Mapping[str, Any]) -> dict[str, Any]:
    return {"reward" if name == "policy" else name: value for name, value in values.items()}
