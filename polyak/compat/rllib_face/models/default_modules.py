"""The modules that PPO, DQN and SAC train unless they are given others.

Shapes: B batch, A actions, K atoms.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak.compat.rllib_face.columns import (
    ACTOR,
    ATOMS,
    CRITIC,
    ENCODER_OUT,
    QF_LOGITS,
    QF_NEXT_PREDS,
    QF_PREDS,
    QF_PROBS,
    QF_TARGET_NEXT_PREDS,
    QF_TARGET_NEXT_PROBS,
    Columns,
)
from polyak.compat.rllib_face.models.catalog import DQNCatalog, PPOCatalog
from polyak.compat.rllib_face.models.exploration import PointSchedule
from polyak.compat.rllib_face.models.rl_module import Batch, TorchRLModule, as_images


class DefaultPPOTorchRLModule(TorchRLModule):
    """``encoder``, policy head ``pi``, value head ``vf``, from a
    :class:`~polyak.compat.rllib_face.models.catalog.PPOCatalog`."""

    default_catalog: ClassVar[Any] = PPOCatalog

    def setup(self) -> None:
        catalog: Any = self.catalog
        self.encoder = catalog.build_actor_critic_encoder(framework="torch")
        self.pi = catalog.build_pi_head(framework="torch")
        self.vf = catalog.build_vf_head(framework="torch")

    def get_non_inference_attributes(self) -> list[str]:
        """Returns the value head, and its encoder where that is its own."""
        return ["vf", "encoder.critic_encoder"] if hasattr(self.encoder, "critic_encoder") else ["vf"]

    def get_initial_state(self) -> dict[str, Any]:
        find = getattr(self.encoder, "get_initial_state", None)
        return {} if find is None else find()

    def _forward(self, batch: Batch, **kwargs: Any) -> Batch:
        return self._outputs(batch, with_embeddings=False)

    def _forward_train(self, batch: Batch, **kwargs: Any) -> Batch:
        return self._outputs(batch, with_embeddings=True)

    def _outputs(self, batch: Batch, with_embeddings: bool) -> Batch:
        encoded = self.encoder(as_images(batch))
        outputs = {Columns.ACTION_DIST_INPUTS: self.pi(encoded[ENCODER_OUT][ACTOR])}
        if with_embeddings:
            outputs[Columns.EMBEDDINGS] = encoded[ENCODER_OUT][CRITIC]
        if Columns.STATE_OUT in encoded:
            outputs[Columns.STATE_OUT] = encoded[Columns.STATE_OUT]
        return outputs

    def compute_values(self, batch: Batch, embeddings: Any = None) -> Tensor:
        """State values [B]."""
        if embeddings is None:
            embeddings = self.encoder(as_images(batch))[ENCODER_OUT][CRITIC]
        values: Tensor = self.vf(embeddings)
        return values.squeeze(-1)


class DefaultDQNTorchRLModule(TorchRLModule):
    """``encoder``, head ``af`` of advantages or action values, and ``vf`` of a dueling network, from a
    :class:`~polyak.compat.rllib_face.models.catalog.DQNCatalog`.

    ``model_config`` may also hold ``num_atoms``, ``v_min``, ``v_max``, ``dueling``, ``sigma0`` and
    ``epsilon``.
    """

    default_catalog: ClassVar[Any] = DQNCatalog
    action_space: spaces.Discrete

    def setup(self) -> None:
        catalog: Any = self.catalog
        options = catalog._model_config_dict
        self.num_atoms = int(options.get("num_atoms", 1))
        self.encoder = catalog.build_encoder(framework="torch")
        self.vf = catalog.build_vf_head(framework="torch") if options.get("dueling", False) else None
        self.af = catalog.build_af_head(framework="torch")
        support = torch.linspace(options.get("v_min", -10.0), options.get("v_max", 10.0), self.num_atoms)
        self.register_buffer("support", support, persistent=False)
        self.epsilon_schedule = PointSchedule(options.get("epsilon", 0.0))
        self._target: tuple[DefaultDQNTorchRLModule, ...] = ()  # in which torch looks for no parameters

    def _forward(self, batch: Batch, **kwargs: Any) -> Batch:
        values = self.compute_q_values(batch)[QF_PREDS]
        return {Columns.ACTIONS: values.argmax(-1), Columns.ACTION_DIST_INPUTS: values}

    @torch.no_grad()
    def _forward_exploration(self, batch: Batch, t: int = 0, **kwargs: Any) -> Batch:
        """Random actions with the probability that ``epsilon_schedule`` has after ``t`` environment steps, else
        those of the largest values."""
        values = self.compute_q_values(batch)[QF_PREDS]
        drawn = torch.randint_like(values[..., 0], values.shape[-1], dtype=torch.int64)
        rarely = torch.rand_like(values[..., 0]) < self.epsilon_schedule.update(t)
        return {Columns.ACTIONS: torch.where(rarely, drawn, values.argmax(-1))}

    def _forward_train(self, batch: Batch, **kwargs: Any) -> Batch:
        """Returns the values of the observations; if the batch has the next observations, also their values by the
        target networks, and with :attr:`uses_double_q` by these networks."""
        outputs = dict(self.compute_q_values(batch))
        if Columns.NEXT_OBS not in batch:
            return outputs
        then = {Columns.OBS: batch[Columns.NEXT_OBS]}
        if self.uses_double_q:
            outputs[QF_NEXT_PREDS] = self.compute_q_values(then)[QF_PREDS]
        lagging = self.forward_target(then)
        outputs[QF_TARGET_NEXT_PREDS] = lagging[QF_PREDS]
        if self.num_atoms > 1:
            outputs[QF_TARGET_NEXT_PROBS] = lagging[QF_PROBS]
        return outputs

    @property
    def uses_double_q(self) -> bool:
        """Whether the next action is chosen by these networks and valued by the target networks."""
        return bool(_option(self.model_config, "double_q", True))

    @property
    def uses_dueling(self) -> bool:
        """Whether there is a head of state values."""
        return self.vf is not None

    def compute_q_values(self, batch: Batch) -> dict[str, Tensor]:
        """Returns action values [B, A], and the distributions whose means they are. Noisy layers draw no noise."""
        return self._q_values(batch)

    def _q_values(self, batch: Batch, prefix: str = "") -> dict[str, Tensor]:
        """Returns values by these networks, or by those whose names have the prefix."""
        features, logits = self._advantages(batch, prefix)
        if self.vf is not None:
            logits = getattr(self, f"{prefix}vf")(features)[..., None] + logits - logits.mean(-1, keepdim=True)
        if self.num_atoms == 1:
            return {QF_PREDS: logits.squeeze(-2)}
        logits = logits.transpose(-1, -2)
        probs = logits.softmax(-1)
        preds = (probs * self.support).sum(-1)
        return {QF_PREDS: preds, ATOMS: self.support, QF_LOGITS: logits, QF_PROBS: probs}

    def _advantages(self, batch: Batch, prefix: str = "") -> tuple[Tensor, Tensor]:
        """Returns features [B, F], and the outputs of the advantage head for them [B, K, A]."""
        features = getattr(self, f"{prefix}encoder")(as_images(batch))[ENCODER_OUT]
        return features, getattr(self, f"{prefix}af")(features).unflatten(
            -1, (self.num_atoms, int(self.action_space.n))
        )

    def compute_advantage_distribution(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the outputs of the advantage head alone, for a dueling module with atoms: [B, A, K]."""
        logits = self._advantages(batch)[1].transpose(-1, -2)
        return {ATOMS: self.support, QF_LOGITS: logits, QF_PROBS: logits.softmax(-1)}

    # -- the lagging copies --------------------------------------------------------------------------------------------

    def adopt_target(self, target: DefaultDQNTorchRLModule) -> None:
        """Take the networks of another module as the lagging copies of these."""
        self._target = (target,)

    def make_target_networks(self) -> None:
        """Copies with the same weights."""
        self._target = ()
        for name in self._copied:
            setattr(self, f"_target_{name}", copy.deepcopy(getattr(self, name)).requires_grad_(False))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_target_") and vars(self).get("_target"):
            return getattr(self._target[0], name.removeprefix("_target_"))
        return super().__getattr__(name)

    @property
    def _copied(self) -> list[str]:
        """Networks that have lagging copies."""
        return [name for name in ("encoder", "af", "vf") if getattr(self, name) is not None]

    def get_target_network_pairs(self) -> list[tuple[nn.Module, nn.Module]]:
        """Encoder and heads with their copies."""
        return [(getattr(self, name), getattr(self, f"_target_{name}")) for name in self._copied]

    def get_non_inference_attributes(self) -> list[str]:
        """Returns the lagging copies."""
        return [f"_target_{name}" for name in self._copied]

    def _tensors(self) -> dict[str, Tensor]:
        copies = {f"_target_{name}": getattr(self, f"_target_{name}") for name in self._copied if self._target}
        own = super()._tensors()
        return own | {
            f"{above}.{k}": tensor for above, part in copies.items() for k, tensor in part.state_dict().items()
        }

    def forward_target(self, batch: Batch) -> dict[str, Any]:
        """Returns :meth:`compute_q_values` of the target networks.

        Raises:
            RuntimeError: there are no target networks.
        """
        if self._target:
            return self._target[0].compute_q_values(batch)
        if not hasattr(self, "_target_encoder"):
            raise RuntimeError("there are no target networks: call make_target_networks() first.")
        return self._q_values(batch, "_target_")


def _option(options: Any, name: str, default: Any) -> Any:
    """Returns an entry of ``model_config``, which may be a dict or an object."""
    return options.get(name, default) if isinstance(options, Mapping) else getattr(options, name, default)


def view_of(policy: Any, observation_space: Any, turned: bool) -> Any:
    """Returns the module of a policy, under RLlib's contract."""
    return getattr(policy, "rl_module", None) or DefaultSACTorchRLModule(policy, observation_space, turned)


class DefaultSACTorchRLModule(TorchRLModule):
    """A view of the networks of SAC: means and log standard deviations of actions before tanh, and action values.

    Args:
        policy: polyak's.
    """

    def __init__(self, policy: Any, observation_space: spaces.Space, turned: bool) -> None:
        self._policy = (policy, turned)
        super().__init__(observation_space=observation_space, action_space=policy.action_space)
        self.actor, self.critic = policy.actor, policy.critic

    def _read(self, batch: Batch) -> Tensor:
        policy, turned = self._policy
        observations = batch[Columns.OBS]
        observations = observations.movedim(-1, 1) if turned else observations
        return observations.to(policy.device)

    def _forward(self, batch: Batch, **kwargs: Any) -> Batch:
        mean, log_std, _ = self.actor.get_action_dist_params(self._read(batch))
        return {Columns.ACTION_DIST_INPUTS: torch.cat([mean, log_std], -1)}

    def _forward_train(self, batch: Batch, **kwargs: Any) -> Batch:
        values = self.critic.q_values(self._read(batch), batch[Columns.ACTIONS])
        return {**self._forward(batch), **dict(zip((QF_PREDS, "qf_twin_preds"), values, strict=False))}

    def compute_q_values(self, batch: Batch) -> dict[str, Tensor]:
        """Returns the least of the critics' values [B] for the batch's actions, scaled to [-1, 1]."""
        values = self.critic.q_values(self._read(batch), batch[Columns.ACTIONS])
        return {QF_PREDS: values.amin(0)}


PPORLModule = PPOTorchRLModule = DefaultPPOTorchRLModule
DQNRainbowTorchRLModule = DefaultDQNTorchRLModule
"""The names in earlier versions of RLlib."""
