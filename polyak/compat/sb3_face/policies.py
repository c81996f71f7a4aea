"""Stable-Baselines3's policy classes: polyak's own, with its argument order, optimizers and hooks for subclasses.

A policy here is built with a learning-rate schedule and owns its optimizer, which the learner then uses. The hooks that
users override (``_build``, ``_build_mlp_extractor``, ``make_actor``, ``make_critic``, ``forward`` ...) take effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.optim import Optimizer
from typing_extensions import Self

from polyak.checkpoint.building import no_larger_than
from polyak.checkpoint.damage import damage_named
from polyak.compat.sb3_face import policy_file
from polyak.compat.sb3_face.distributions import (
    DiagGaussianDistribution,
    Distribution,
    SquashedDiagGaussianDistribution,
    StateDependentNoiseDistribution,
    make_proba_distribution,
)
from polyak.compat.sb3_face.signatures import takes, with_defaults
from polyak.envs.spaces import clipped
from polyak.learning.engine.device import get_device
from polyak.learning.learner import OptimizerRecipe
from polyak.nn.codec import ActionCodec
from polyak.nn.distributions.state_dependent import StateDependentGaussianFamily
from polyak.nn.networks.batch_renorm import BatchRenorm1d
from polyak.nn.networks.encoders import (
    CombinedExtractor,
    Extractor,
    ExtractorClass,
    FlattenExtractor,
    NatureCNN,
    Obs,
    make_extractor,
)
from polyak.nn.plain import plain
from polyak.nn.policies import actor_critic, direct, quantile_critic
from polyak.nn.policies import continuous as continuous_policy
from polyak.nn.policies import crossq as crossq_policy
from polyak.nn.policies import value as value_policy
from polyak.nn.policies.base import Network, Noise, Policy, lagging, shaped
from polyak.schedules import Schedule

Kwargs = dict[str, Any]
P = TypeVar("P", bound=Policy)


class BaseModel(Network):
    """A network that can build its own features extractor and optimizer, and be saved by itself.

    Args:
        observation_space: space of the observations.
        action_space: space of the actions.
        features_extractor_class: makes features of observations.
        features_extractor_kwargs: its arguments besides the space.
        features_extractor: a finished one, to share.
        normalize_images: divide uint8 images by 255.
        optimizer_class: torch optimizer.
        optimizer_kwargs: its arguments besides the learning rate.
    """

    optimizer: Optimizer

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        features_extractor_class: ExtractorClass = FlattenExtractor,
        features_extractor_kwargs: Mapping[str, Any] | None = None,
        features_extractor: nn.Module | None = None,
        normalize_images: bool = True,
        optimizer_class: type[Optimizer] = torch.optim.Adam,
        optimizer_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        extraction: Kwargs = {
            "features_extractor_class": features_extractor_class,
            "features_extractor_kwargs": dict(features_extractor_kwargs or {}),
        }
        if isinstance(self, Policy):
            super().__init__(observation_space, action_space, normalize_images=normalize_images, **extraction)
        else:
            super().__init__(observation_space, action_space, normalize_images=normalize_images)
            self.__dict__.update(extraction)
        setattr(self, "features_extractor", features_extractor)  # noqa: B010  # a module is declared by subclasses
        self.optimizer_class, self.optimizer_kwargs = optimizer_class, dict(optimizer_kwargs or {})

    features_extractor_class: ExtractorClass
    features_extractor_kwargs: Kwargs
    _arguments: ClassVar[tuple[str, ...]] = ("observation_space", "action_space", "normalize_images")
    """Names of the constructor's arguments; each is an attribute, or one of ``_network_options``."""

    def make_features_extractor(self) -> Extractor:
        """A new features extractor."""
        return make_extractor(
            self.observation_space, self.features_extractor_class, self.features_extractor_kwargs, self.normalize_images
        )

    def _update_features_extractor(self, net_kwargs: Kwargs, features_extractor: nn.Module | None = None) -> Kwargs:
        """``net_kwargs`` with a features extractor, the one given or a new one, and its number of features."""
        extractor = self.make_features_extractor() if features_extractor is None else features_extractor
        return {**net_kwargs, "features_extractor": extractor, "features_dim": extractor.features_dim}

    def _get_constructor_parameters(self) -> Kwargs:
        """The constructor arguments that :meth:`save` writes for :meth:`load`."""
        options = self._network_options()
        return {name: options[name] if name in options else getattr(self, name) for name in self._arguments}

    def _network_options(self) -> Kwargs:
        """Constructor arguments that are no attributes."""
        return {}

    def _new_optimizer(self, parameters: Any, lr_schedule: Schedule) -> Optimizer:
        return OptimizerRecipe(self.optimizer_class, self.optimizer_kwargs)(parameters, float(lr_schedule(1)))

    def save(self, path: Any) -> None:
        """Write weights and constructor arguments to one file that runs nothing when it is loaded.

        Args:
            path: a path or a file opened for writing.
        """
        policy_file.save(path, self.state_dict(), self._get_constructor_parameters())

    @classmethod
    def load(cls, path: Any, device: torch.device | str = "auto", trust: bool = False) -> Self:
        """Build a model from what :meth:`save` wrote.

        Args:
            path: a path or a file opened for reading.
            device: where to put it.
            trust: also read files of Stable-Baselines3, which are pickles and can run any code.

        Raises:
            ValueError: not such a file.
        """
        with damage_named(path):
            weights, parameters = policy_file.load(path, trust)
            with no_larger_than(weights.values(), parameters, trust):
                model = cls(**policy_file.with_extractor(parameters))
            model.load_state_dict(weights)
        return model.to(get_device(device))

    def set_training_mode(self, mode: bool) -> None:
        changes = self.training != mode
        super().set_training_mode(mode)
        for name, part in self.named_children() if changes else ():
            if name.endswith("_target") or not isinstance(part, BaseModel):  # targets stay in evaluation
                continue
            if type(part).set_training_mode is not BaseModel.set_training_mode:
                part.set_training_mode(mode)

    set_training_mode.__doc__ = Network.set_training_mode.__doc__


class _PolicysCodec(ActionCodec):
    """Scales as a policy does, whose class may have a ``scale_action`` and ``unscale_action`` of its own.

    Args:
        policy: is asked.
        squash: as of an :class:`~polyak.nn.codec.ActionCodec`.
    """

    def __init__(self, policy: Policy, squash: bool) -> None:
        super().__init__(policy.action_space, squash)
        cls = type(policy)
        own = cls.scale_action is not Policy.scale_action or cls.unscale_action is not Policy.unscale_action
        self._policy = policy if own else None

    def to_env(self, action: np.ndarray) -> np.ndarray:
        if self._policy is not None and self.squash:
            unscaled = self._policy.unscale_action(action)
            return unscaled if self._box is None else clipped(unscaled, self._box)
        return super().to_env(action)

    def from_env(self, action: np.ndarray) -> np.ndarray:
        if self._policy is not None and self.squash:
            return self._policy.scale_action(action)
        return super().from_env(action)


class BasePolicy(BaseModel, Policy):
    """A :class:`BaseModel` that chooses actions; a subclass defines ``_predict``.

    Args:
        squash_output: its actions lie in [-1, 1] and stand for the range of the Box.
    """

    squashes: ClassVar[bool] = False
    """Whether all policies of the class squash, whatever the argument."""

    def __init__(self, *args: Any, squash_output: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.codec = _PolicysCodec(self, squash_output or self.squashes)

    def act(self, obs: Obs, deterministic: bool = False) -> Tensor:
        return torch.as_tensor(self._predict(obs, deterministic))  # numpy will do, too

    def _predict(self, observation: Obs, deterministic: bool = False) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} does not define _predict(observation, deterministic).")

    @staticmethod
    def _dummy_schedule(progress_remaining: float) -> float:
        """Stands for the learning rate of a policy that is not being trained."""
        return 0.0


class TrainedPolicy(nn.Module):
    """Comes before the class of a policy that is built with a learning rate and makes its optimizers.

    Args:
        observation_space: space of the observations.
        action_space: space of the actions.
        lr_schedule: learning rate by remaining progress.
        optimizer_class: torch optimizer.
        optimizer_kwargs: its arguments besides the learning rate; ``None`` takes those of ``usual_optimizer_kwargs``.
        options: of the policy.
    """

    usual_optimizer_kwargs: ClassVar[Mapping[type[Optimizer], Kwargs]] = {}
    """Arguments that the algorithm is tuned for, by the class of the optimizer."""

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        lr_schedule: Schedule,
        *,
        optimizer_class: type[Optimizer] = torch.optim.Adam,
        optimizer_kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        if optimizer_kwargs is None:
            optimizer_kwargs = self.usual_optimizer_kwargs.get(optimizer_class)
        self._first_schedule = lr_schedule
        options |= {"optimizer_class": optimizer_class, "optimizer_kwargs": optimizer_kwargs}
        super().__init__(observation_space, action_space, **options)
        del self._first_schedule

    def _network_options(self) -> Kwargs:
        return {"lr_schedule": BasePolicy._dummy_schedule}


def reads_by(extractor: ExtractorClass) -> Callable[[type[P]], type[P]]:
    """Decorate a policy class: the same constructor, but ``features_extractor_class`` defaults to ``extractor``."""

    def decorate(cls: type[P]) -> type[P]:
        own = with_defaults(cls.__init__, features_extractor_class=extractor)
        setattr(cls, "__init__", own)  # noqa: B010  # a plain assignment to a method does not type-check
        return cls

    return decorate


_TRAINED = "features_extractor_class features_extractor_kwargs normalize_images optimizer_class optimizer_kwargs"
_NETWORK = "net_arch features_extractor features_dim activation_fn"
_SDE = "use_sde log_std_init full_std use_expln"


# -- stochastic actor and state values: A2C, PPO, TRPO -----------------------------------------------------------------


SHARING = _TRAINED.replace("normalize_images", "share_features_extractor normalize_images")
ACTOR_CRITIC = f"lr_schedule net_arch activation_fn ortho_init {_SDE} squash_output {SHARING}"
"""Arguments of the classes below."""


@takes(ACTOR_CRITIC)
class ActorCriticPolicy(TrainedPolicy, actor_critic.ActorCriticPolicy, BasePolicy):
    """See :class:`polyak.nn.ActorCriticPolicy` and :class:`TrainedPolicy`."""

    usual_optimizer_kwargs = {torch.optim.Adam: {"eps": 1e-5}}

    action_dist: Distribution
    """The distribution, whose parameters are set for each batch; a subclass may set one of its own here."""

    def _build_networks(self) -> None:
        self.action_dist = self._make_distribution()
        self._build(self._first_schedule)

    def _make_distribution(self) -> Distribution:
        options: Kwargs = {}
        if self.use_sde:
            options = {
                "full_std": self.full_std,
                "squash_output": self.squash_output,
                "use_expln": self.use_expln,
            }
        return make_proba_distribution(self.action_space, self.use_sde, options)

    def _build(self, lr_schedule: Schedule) -> None:
        """Make the networks and their optimizer."""
        super()._build_networks()
        self.optimizer = self._new_optimizer(self.parameters(), lr_schedule)

    def _build_heads(self, latent_dim: int) -> None:
        dist = self.action_dist
        if isinstance(dist, (DiagGaussianDistribution, StateDependentNoiseDistribution)):
            self.action_net, self.log_std = dist.proba_distribution_net(latent_dim, log_std_init=self.log_std_init)
            if isinstance(dist, StateDependentNoiseDistribution):
                self.exploration_noise = dist.noise
        else:
            self.action_net = dist.proba_distribution_net(latent_dim)

    @plain
    def _get_action_dist_from_latent(self, latent_pi: Tensor) -> Distribution:  # type: ignore[override]
        dist, outputs = self.action_dist, self.action_net(latent_pi)
        if isinstance(dist, DiagGaussianDistribution):
            return dist.proba_distribution(outputs, self.log_std)
        if isinstance(dist, StateDependentNoiseDistribution):
            return dist.proba_distribution(outputs, self.log_std, latent_pi)
        return dist.proba_distribution(outputs)

    @plain
    def get_distribution(self, obs: Obs) -> Distribution:  # type: ignore[override]
        """``action_dist`` with the parameters for observations [B, ...]; valid until the next call."""
        return super().get_distribution(obs)  # type: ignore[return-value]

    def draw_noise(self, batch: int, generator: torch.Generator | None = None) -> Noise:
        return {}  # action_dist draws by itself

    def reset_noise(self, n_envs: int = 1) -> None:
        if not isinstance(self.action_dist, StateDependentNoiseDistribution):
            Policy.reset_noise(self, n_envs)
            return
        self.action_dist.sample_weights(self.log_std, n_envs)


@reads_by(NatureCNN)
class ActorCriticCnnPolicy(ActorCriticPolicy):
    """:class:`ActorCriticPolicy` for images."""


@reads_by(CombinedExtractor)
class MultiInputActorCriticPolicy(ActorCriticPolicy):
    """:class:`ActorCriticPolicy` for Dict observations."""


# -- one network: ARS --------------------------------------------------------------------------------------------------


@takes("net_arch activation_fn with_bias squash_output")
class ARSPolicy(direct.DirectPolicy, BasePolicy):
    """See :class:`polyak.nn.policies.direct.DirectPolicy`. It has neither a learning rate nor an optimizer."""

    @plain
    def _predict(self, observation: Obs, deterministic: bool = True) -> Tensor:
        return self(observation)


@takes("with_bias squash_output", with_bias=False, squash_output=False)
class ARSLinearPolicy(ARSPolicy):
    """:class:`ARSPolicy` without hidden layers."""

    def __init__(self, observation_space: spaces.Space, action_space: spaces.Space, **options: Any) -> None:
        super().__init__(observation_space, action_space, net_arch=[], **options)


# -- action values: DQN, QRDQN -----------------------------------------------------------------------------------------


@takes("features_extractor features_dim net_arch activation_fn normalize_images")
class QNetwork(value_policy.QNetwork, BasePolicy):
    """See :class:`polyak.nn.QNetwork`; acts greedily."""

    @plain
    def _predict(self, observation: Obs, deterministic: bool = True) -> Tensor:
        return self(observation).argmax(dim=1).reshape(-1)


@takes("features_extractor features_dim n_quantiles net_arch activation_fn normalize_images")
class QuantileNetwork(value_policy.QuantileNetwork, BasePolicy):
    """See :class:`polyak.nn.QuantileNetwork`; called, it gives the quantiles [B, N, A]. Acts greedily."""

    quantile_net: nn.Sequential
    q_net = property(attrgetter("quantile_net"))
    """polyak's name of it."""

    def _build_layers(self, n_actions: int) -> None:
        self.quantile_net = nn.Sequential(*self._layers(self.features_dim, n_actions, self.n_quantiles, self.net_arch))

    @plain
    def forward(self, obs: Obs) -> Tensor:
        return self.quantiles(obs)

    @plain
    def _predict(self, observation: Obs, deterministic: bool = True) -> Tensor:
        return self(observation).mean(dim=1).argmax(dim=1).reshape(-1)


class _GreedyPolicy(TrainedPolicy, value_policy.ValuePolicy, BasePolicy):
    """Base of the classes below: keyword dicts and a factory that subclasses override."""

    net_type: ClassVar[value_policy.NetworkClass]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, network=self.net_type, **options)

    def _build_networks(self) -> None:
        self.net_args: Kwargs = {
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            **self.network_options,
            "net_arch": self.net_arch,
            "activation_fn": self.activation_fn,
            "normalize_images": self.normalize_images,
        }
        self._build(self._first_schedule)

    def _build(self, lr_schedule: Schedule) -> None:
        """Make the networks and their optimizer."""
        super()._build_networks()
        self.optimizer = self._new_optimizer(self.q_net.parameters(), lr_schedule)

    @plain
    def _predict(self, observation: Obs, deterministic: bool = True) -> Tensor:
        q_net: Any = self.q_net
        return q_net._predict(observation, deterministic=deterministic)

    @plain
    def act(self, obs: Obs, deterministic: bool = True) -> Tensor:
        return torch.as_tensor(self._predict(obs, deterministic))

    def _network_options(self) -> Kwargs:
        return super()._network_options() | self.network_options


@takes(f"lr_schedule net_arch activation_fn {_TRAINED}")
class DQNPolicy(_GreedyPolicy):
    """See :class:`polyak.nn.ValuePolicy` and :class:`TrainedPolicy`."""

    net_type = QNetwork

    def make_q_net(self) -> QNetwork:
        """A new action-value network."""
        return QNetwork(**self._update_features_extractor(self.net_args)).to(self.device)


@reads_by(NatureCNN)
class DQNCnnPolicy(DQNPolicy):
    """:class:`DQNPolicy` for images."""


@reads_by(CombinedExtractor)
class DQNMultiInputPolicy(DQNPolicy):
    """:class:`DQNPolicy` for Dict observations."""


@takes(f"lr_schedule n_quantiles net_arch activation_fn {_TRAINED}", QuantileNetwork)
class QRDQNPolicy(_GreedyPolicy):
    """See :class:`polyak.nn.ValuePolicy`, with a :class:`polyak.nn.QuantileNetwork`, and :class:`TrainedPolicy`."""

    net_type = QuantileNetwork
    targets = ("quantile_net_target",)
    quantile_net: QuantileNetwork
    quantile_net_target: QuantileNetwork
    q_net = property(attrgetter("quantile_net"))  # what polyak calls them
    q_net_target = property(attrgetter("quantile_net_target"))

    @property
    def n_quantiles(self) -> int:
        """Quantiles of each action."""
        return int(self.network_options["n_quantiles"])

    def _build(self, lr_schedule: Schedule) -> None:
        self.quantile_net = self.make_quantile_net()
        self.quantile_net_target = lagging(self.make_quantile_net(), self.quantile_net).eval()
        self.optimizer = self._new_optimizer(self.quantile_net.parameters(), lr_schedule)

    def make_quantile_net(self) -> QuantileNetwork:
        """A new network of quantiles."""
        return QuantileNetwork(**self._update_features_extractor(self.net_args)).to(self.device)


@reads_by(NatureCNN)
class QRDQNCnnPolicy(QRDQNPolicy):
    """:class:`QRDQNPolicy` for images."""


@reads_by(CombinedExtractor)
class QRDQNMultiInputPolicy(QRDQNPolicy):
    """:class:`QRDQNPolicy` for Dict observations."""


# -- continuous actor and critics: SAC, TD3, DDPG, TQC -----------------------------------------------------------------


@takes(f"{_NETWORK} normalize_images n_critics share_features_extractor")
class ContinuousCritic(continuous_policy.ContinuousCritic, BaseModel):
    """See :class:`polyak.nn.ContinuousCritic`."""

    def q_values(self, obs: Obs, actions: Tensor) -> Tensor:
        if type(self).forward is ContinuousCritic.forward:
            return super().q_values(obs, actions)
        return torch.stack([values.squeeze(1) for values in self(obs, actions)])  # a subclass' own critics


@takes(f"{_NETWORK} normalize_images n_quantiles n_critics share_features_extractor")
class QuantileCritic(quantile_critic.QuantileCritic, BaseModel):
    """See :class:`polyak.nn.QuantileCritic`."""


@takes(f"{_NETWORK} {_SDE} clip_mean normalize_images")
class SACActor(continuous_policy.SquashedGaussianActor, BasePolicy):
    """See :class:`polyak.nn.SquashedGaussianActor`."""

    squashes = True
    action_dist: Distribution
    """The distribution, whose parameters are set for each batch; a subclass may set one of its own here."""

    def _build_heads(self, latent_dim: int) -> None:
        super()._build_heads(latent_dim)
        family, log_std = self.action_family, self.log_std
        if isinstance(family, StateDependentGaussianFamily) and not isinstance(log_std, nn.Module):
            self.action_dist = StateDependentNoiseDistribution(
                family.action_dim, family.full_std, family.use_expln, squash_output=True, learn_features=True
            )
            self.action_dist.share(self.exploration_noise, log_std)
        else:
            self.action_dist = SquashedDiagGaussianDistribution(family.action_dim)

    @plain
    def get_distribution(self, obs: Obs) -> Distribution:  # type: ignore[override]
        """``action_dist`` with the parameters for observations [B, ...]; valid until the next call."""
        mean, log_std, named = self.get_action_dist_params(obs)
        return self.action_dist.proba_distribution(mean, log_std, **named)

    def action_log_prob(self, obs: Obs) -> tuple[Tensor, Tensor]:
        mean, log_std, named = self.get_action_dist_params(obs)
        return self.action_dist.log_prob_from_params(mean, log_std, **named)

    def reset_noise(self, batch_size: int = 1) -> None:
        log_std = self.log_std
        if isinstance(self.action_dist, StateDependentNoiseDistribution) and not isinstance(log_std, nn.Module):
            self.action_dist.sample_weights(log_std, batch_size)
        else:
            super().reset_noise(batch_size)

    def _predict(self, observation: Obs, deterministic: bool = False) -> Tensor:
        return self(observation, deterministic)


@takes(f"{_NETWORK} normalize_images")
class TD3Actor(continuous_policy.DeterministicActor, BasePolicy):
    """See :class:`polyak.nn.DeterministicActor`."""

    squashes = True

    @plain
    def forward(self, obs: Obs) -> Tensor:  # type: ignore[override]
        return super().forward(obs)

    def _predict(self, observation: Obs, deterministic: bool = False) -> Tensor:
        return self(observation)


class _ContinuousPolicy(TrainedPolicy, continuous_policy.ContinuousPolicy, BasePolicy):
    """Base of the classes below: keyword dicts and factories that subclasses override."""

    actor_type: ClassVar[continuous_policy.ActorClass]
    critic_type: ClassVar[type[continuous_policy.ContinuousCritic]] = ContinuousCritic
    critic: ContinuousCritic | QuantileCritic

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, actor=self.actor_type, critic=self.critic_type, **options)

    def _build_networks(self) -> None:
        self.net_args: Kwargs = {
            "observation_space": self.observation_space,
            "action_space": self.action_space,
            "net_arch": self._actor_arch,
            "activation_fn": self.activation_fn,
            "normalize_images": self.normalize_images,
        }
        self.actor_kwargs: Kwargs = self.net_args | self.actor_options
        self.critic_kwargs: Kwargs = self.net_args | self.critic_options
        self.critic_kwargs |= {
            "n_critics": self.n_critics,
            "net_arch": self._critic_arch,
            "share_features_extractor": self.share_features_extractor,
        }
        self._build(self._first_schedule)

    def _build(self, lr_schedule: Schedule) -> None:
        """Make the networks and their optimizers."""
        super()._build_networks()
        self.actor.optimizer = self._new_optimizer(self.actor.parameters(), lr_schedule)
        own_parameters = getattr(self.critic, "own_parameters", self.critic.parameters)
        self.critic.optimizer = self._new_optimizer(own_parameters(), lr_schedule)

    def make_actor(self, features_extractor: nn.Module | None = None) -> Any:
        """A new actor, with its own features extractor unless one is given."""
        return self.actor_type(**self._update_features_extractor(self.actor_kwargs, features_extractor)).to(self.device)

    def make_critic(self, features_extractor: nn.Module | None = None) -> Any:
        """New critics, with their own features extractor unless one is given."""
        critic_kwargs = self._update_features_extractor(self.critic_kwargs, features_extractor)
        return self.critic_type(**critic_kwargs).to(self.device)

    @plain
    def act(self, obs: Obs, deterministic: bool = False) -> Tensor:
        return shaped(torch.as_tensor(self._predict(obs, deterministic)), self.codec.shape)

    def forward(self, obs: Obs, deterministic: bool = False) -> Tensor:
        """Actions [B, A] in [-1, 1]."""
        return self._predict(obs, deterministic)

    @plain
    def _predict(self, observation: Obs, deterministic: bool = False) -> Tensor:
        return self.actor(observation, deterministic)

    def draw_noise(self, batch: int, generator: torch.Generator | None = None) -> Noise:
        return {}  # action_dist draws by itself

    def _network_options(self) -> Kwargs:
        return {**super()._network_options(), **self.actor_options, **self.critic_options}


_CONTINUOUS = f"{_TRAINED} n_critics share_features_extractor"
_GAUSSIAN = f"{_SDE.replace('full_std ', '')} clip_mean"


@takes(f"lr_schedule net_arch activation_fn {_GAUSSIAN} {_CONTINUOUS}", SACActor)
class SACPolicy(_ContinuousPolicy):
    """See :class:`polyak.nn.ContinuousPolicy`, with a Gaussian actor, and :class:`TrainedPolicy`."""

    actor_type = SACActor


@reads_by(NatureCNN)
class SACCnnPolicy(SACPolicy):
    """:class:`SACPolicy` for images."""


@reads_by(CombinedExtractor)
class SACMultiInputPolicy(SACPolicy):
    """:class:`SACPolicy` for Dict observations."""


class _Normalising(nn.Module):
    """A network with batch renormalisation."""

    def set_bn_training_mode(self, mode: bool) -> None:
        """Let the layers that normalise learn from batches, or not; the others stay as they are."""
        for module in self.modules():
            if isinstance(module, BatchRenorm1d):
                module.train(mode)


_NORM = "batch_norm batch_norm_momentum batch_norm_eps renorm_warmup_steps"


@takes(f"{_NETWORK} {_NORM} {_SDE} clip_mean normalize_images")
class CrossQActor(_Normalising, crossq_policy.CrossQActor, SACActor):
    """See :class:`polyak.nn.CrossQActor`."""


@takes(f"{_NETWORK} {_NORM} normalize_images n_critics share_features_extractor")
class CrossQCritic(_Normalising, crossq_policy.CrossQCritic, ContinuousCritic):
    """See :class:`polyak.nn.CrossQCritic`."""


@takes(f"lr_schedule net_arch activation_fn {_NORM} {_GAUSSIAN} {_CONTINUOUS}", CrossQActor)
class CrossQPolicy(SACPolicy):
    """See :class:`polyak.nn.ContinuousPolicy`, with :class:`CrossQActor` and :class:`CrossQCritic`, and
    :class:`TrainedPolicy`."""

    actor_type = CrossQActor
    critic_type = CrossQCritic
    usual_optimizer_kwargs = {cls: {"betas": (0.5, 0.999)} for cls in (torch.optim.Adam, torch.optim.AdamW)}

    def default_arch(self) -> Any:
        return {"pi": [256, 256], "qf": [1024, 1024]}


@takes(
    f"lr_schedule net_arch activation_fn {_GAUSSIAN} {_CONTINUOUS.replace('n_critics', 'n_quantiles n_critics')}",
    SACActor,
    QuantileCritic,
)
class TQCPolicy(_ContinuousPolicy):
    """See :class:`polyak.nn.ContinuousPolicy`, with a Gaussian actor and a :class:`polyak.nn.QuantileCritic`, and
    :class:`TrainedPolicy`."""

    actor_type = SACActor
    critic_type = QuantileCritic


@reads_by(NatureCNN)
class TQCCnnPolicy(TQCPolicy):
    """:class:`TQCPolicy` for images."""


@reads_by(CombinedExtractor)
class TQCMultiInputPolicy(TQCPolicy):
    """:class:`TQCPolicy` for Dict observations."""


@takes(f"lr_schedule net_arch activation_fn {_CONTINUOUS}")
class TD3Policy(_ContinuousPolicy):
    """See :class:`polyak.nn.ContinuousPolicy`, with a deterministic actor, and :class:`TrainedPolicy`."""

    actor_type = TD3Actor

    def forward(self, observation: Obs, deterministic: bool = False) -> Tensor:
        """Actions [B, A] in [-1, 1]."""
        return self._predict(observation, deterministic)

    @plain
    def _predict(self, observation: Obs, deterministic: bool = False) -> Tensor:
        return self.actor(observation)


@reads_by(NatureCNN)
class TD3CnnPolicy(TD3Policy):
    """:class:`TD3Policy` for images."""


@reads_by(CombinedExtractor)
class TD3MultiInputPolicy(TD3Policy):
    """:class:`TD3Policy` for Dict observations."""
