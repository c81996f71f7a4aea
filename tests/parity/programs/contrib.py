"""sb3-contrib: losses, signatures, short seeded trainings, files."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import torch
import worlds
from sb3_contrib import QRDQN, TQC, TRPO
from sb3_contrib.common.utils import conjugate_gradient_solver, flat_grad, quantile_huber_loss
from sb3_contrib.qrdqn import policies as qrdqn_policies
from sb3_contrib.tqc import policies
from sb3_contrib.trpo import policies as trpo_policies
from stable_baselines3.common.env_util import make_vec_env
from training import _sums

# Of sums of weights and of losses, after some hundred updates in which differences of rounding grow.
TOLERANCE = 2e-3


def quantile_losses() -> Any:
    """Two and three axes, levels of one's own, and gradients."""
    draw = torch.Generator().manual_seed(0)
    q, t = torch.randn(5, 2, 4, generator=draw), 2 * torch.randn(5, 1, 6, generator=draw)
    levels = torch.rand(4, generator=draw).view(1, 4, 1)
    q.requires_grad_()
    one, two = (q[:, 0], t[:, 0]), (q, t)
    pairs = {"one": one, "two": two, "own": (*two, levels[None]), "levels": (*one, levels)}
    found = {
        f"{name}, sum {total}": quantile_huber_loss(*pair, sum_over_quantiles=total)
        for name, pair in pairs.items()
        for total in (True, False)
    }
    return found | {f"gradient of {name}": torch.autograd.grad(loss, q)[0] for name, loss in found.items()}


def wrong_losses() -> Any:
    """Quantiles of another batch."""
    return quantile_huber_loss(torch.zeros(5, 4), torch.zeros(4, 6))


def signatures() -> Any:
    """Names and defaults of what constructors take by position."""

    def shown(cls: type) -> Any:
        taken = [p for p in inspect.signature(cls).parameters.values() if p.kind is not p.KEYWORD_ONLY]
        return [[p.name, p.default if callable(p.default) else repr(p.default)] for p in taken]

    classes = {"TQC": TQC, "policy": policies.TQCPolicy, "critic": policies.Critic, "actor": policies.Actor}
    classes |= {"QRDQN": QRDQN, "QRDQN policy": qrdqn_policies.QRDQNPolicy, "cnn": qrdqn_policies.CnnPolicy}
    classes |= {"quantiles": qrdqn_policies.QuantileNetwork, "TRPO": TRPO, "TRPO policy": trpo_policies.MlpPolicy}
    return {name: shown(cls) for name, cls in classes.items()}


def _tqc(env: Any, steps: int, policy: str = "MlpPolicy", **options: Any) -> Any:
    settings = {"learning_starts": 20, "buffer_size": 500, "batch_size": 16, **options}
    return TQC(policy, env, seed=7, device="cpu", **settings).learn(steps, log_interval=10_000)


def tqc() -> Any:
    """As it comes, but for batches and replay."""
    return _sums(_tqc("Pendulum-v1", 320))


def tqc_options() -> Any:
    """Five critics of seven quantiles, of which four are dropped; fixed temperature; several steps at once."""
    options = {"train_freq": 4, "gradient_steps": 2, "target_update_interval": 2, "ent_coef": 0.2}
    small = {"n_quantiles": 7, "n_critics": 5, "net_arch": {"pi": [16], "qf": [24, 16]}}
    return _sums(_tqc(worlds.Target(), 60, top_quantiles_to_drop_per_net=4, policy_kwargs=small, **options))


def tqc_gsde() -> Any:
    """Exploration that depends on the state."""
    return _sums(_tqc(worlds.Target(), 50, use_sde=True, sde_sample_freq=5))


def tqc_n_steps() -> Any:
    """Returns over three steps, two environments."""
    return _sums(_tqc(make_vec_env(worlds.Target, 2), 60, gradient_steps=-1, n_steps=3))


def tqc_networks() -> Any:
    """What the critics give, and names and shapes of all weights."""
    torch.manual_seed(0)
    model = TQC("MlpPolicy", "Pendulum-v1", seed=1, device="cpu", buffer_size=10)
    obs, actions = torch.ones(3, 3), torch.zeros(3, 1)
    names = {name: list(tensor.shape) for name, tensor in model.policy.state_dict().items()}
    return [names, model.critic(obs, actions), model.critic.n_quantiles, model.critic.quantiles_total]


def tqc_files(folder: Path) -> Any:
    """There and back; a policy by itself."""
    model = _tqc(worlds.Target(), 40, policy_kwargs={"n_quantiles": 5, "net_arch": [8]})
    model.save(folder / "model")
    again = TQC.load(folder / "model")
    model.policy.save(folder / "policy")
    policy = policies.TQCPolicy.load(folder / "policy")
    obs = np.random.default_rng(0).normal(size=(4, *model.observation_space.shape)).astype(np.float32)
    acted = [m.predict(obs, deterministic=True)[0] for m in (model, again, policy)]
    return [acted, again.policy_kwargs["n_quantiles"], again.top_quantiles_to_drop_per_net, policy.critic.n_quantiles]


def tqc_subclassed() -> Any:
    """Critics and a policy of one's own."""

    class Doubled(policies.Critic):
        def forward(self, obs: Any, actions: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(obs, actions)

    class Mine(policies.TQCPolicy):
        def make_critic(self, features_extractor: Any = None) -> Any:
            options = self._update_features_extractor(self.critic_kwargs, features_extractor)
            return Doubled(**options).to(self.device)

    return _sums(_tqc(worlds.Target(), 50, policy=Mine, policy_kwargs={"net_arch": [8]}))


def _qrdqn(env: Any, steps: int, policy: str = "MlpPolicy", **options: Any) -> Any:
    settings = {"learning_starts": 20, "buffer_size": 500, "target_update_interval": 50, **options}
    return QRDQN(policy, env, seed=7, device="cpu", **settings).learn(steps, log_interval=10_000)


def qrdqn() -> Any:
    """As it comes, but for replay and the target's clock."""
    return _sums(_qrdqn("CartPole-v1", 400, learning_rate=1e-3, exploration_fraction=0.5))


def qrdqn_options() -> Any:
    """Few quantiles, clipped gradients, a slow target, an optimizer of one's own, several steps at once."""
    options = {"train_freq": 2, "gradient_steps": 3, "tau": 0.3, "max_grad_norm": 0.5, "batch_size": 16}
    small = {"n_quantiles": 7, "net_arch": [24, 16], "optimizer_class": torch.optim.RMSprop}
    return _sums(_qrdqn("CartPole-v1", 200, policy_kwargs=small, **options))


def qrdqn_n_steps() -> Any:
    """Returns over three steps, two environments."""
    return _sums(_qrdqn(make_vec_env("CartPole-v1", 2), 200, gradient_steps=-1, n_steps=3))


def qrdqn_networks() -> Any:
    """What the network gives, names and shapes of all weights, and the optimizer."""
    torch.manual_seed(0)
    model = QRDQN("MlpPolicy", "CartPole-v1", seed=1, device="cpu", buffer_size=10)
    obs = torch.ones(3, 4)
    names = {name: list(tensor.shape) for name, tensor in model.policy.state_dict().items()}
    made, group = model.policy.make_quantile_net(), model.policy.optimizer.param_groups[0]
    same = [model.quantile_net is model.policy.quantile_net, model.quantile_net_target.training, made.n_quantiles]
    acted = [model.policy(obs), model.quantile_net._predict(obs)]
    return [names, model.quantile_net(obs), acted, same, model.n_quantiles, group["eps"], len(group["params"])]


def qrdqn_pictures() -> Any:
    """Convolutions, with quantiles of one's own number."""
    model = _qrdqn(
        worlds.Pictures(), 30, policy="CnnPolicy", policy_kwargs={"n_quantiles": 5}, buffer_size=50, batch_size=8
    )
    return [_sums(model), {name: list(tensor.shape) for name, tensor in model.policy.state_dict().items()}]


def qrdqn_files(folder: Path) -> Any:
    """There and back; a policy by itself."""
    model = _qrdqn("CartPole-v1", 60, policy_kwargs={"n_quantiles": 5, "net_arch": [8]})
    model.save(folder / "model")
    again = QRDQN.load(folder / "model")
    fresh = QRDQN("MlpPolicy", "CartPole-v1", buffer_size=10, policy_kwargs={"n_quantiles": 5, "net_arch": [8]})
    fresh.set_parameters(folder / "model")
    fresh.set_parameters(model.get_parameters())
    model.policy.save(folder / "policy")
    policy = qrdqn_policies.QRDQNPolicy.load(folder / "policy")
    obs = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    acted = [m.predict(obs, deterministic=True)[0] for m in (model, again, fresh, policy)]
    return [acted, sorted(model.get_parameters()), again.n_quantiles, policy.n_quantiles]


def qrdqn_subclassed() -> Any:
    """A network and a policy of one's own."""

    class Doubled(qrdqn_policies.QuantileNetwork):
        def forward(self, obs: Any) -> torch.Tensor:
            return 2 * super().forward(obs)

    class Mine(qrdqn_policies.QRDQNPolicy):
        def make_quantile_net(self) -> Any:
            return Doubled(**self._update_features_extractor(self.net_args, features_extractor=None)).to(self.device)

    return _sums(_qrdqn("CartPole-v1", 100, policy=Mine, policy_kwargs={"net_arch": [8]}))


def linear_equations() -> Any:
    """Conjugate gradients to the end, and gradients as vectors."""
    draw = torch.Generator().manual_seed(0)
    root, b = torch.randn(6, 6, generator=draw), torch.randn(6, generator=draw)
    torch.manual_seed(1)
    solved = conjugate_gradient_solver((root @ root.T + torch.eye(6)).matmul, b, max_iter=20)
    at_once = conjugate_gradient_solver(lambda v: 2 * v, b, 0)
    x, y, other = (torch.randn(2, 3, generator=draw, requires_grad=True) for _ in range(3))
    slope = flat_grad((x * y).sum(), [x, other, y], create_graph=True)
    return [solved, at_once, slope, slope.requires_grad, flat_grad((slope**2).sum(), [x], retain_graph=True)]


def _trpo(env: Any, steps: int, policy: str = "MlpPolicy", **options: Any) -> Any:
    settings = {"n_steps": 128, "batch_size": 32, "n_critic_updates": 5, **options}
    return TRPO(policy, env, seed=7, device="cpu", **settings).learn(steps, log_interval=10_000)


def trpo() -> Any:
    """As it comes, but for rollouts."""
    return _sums(_trpo("CartPole-v1", 384))


def trpo_options() -> Any:
    """A wide region, few steps of conjugate gradients, little damping, two environments, advantages as they are."""
    options = {"target_kl": 0.05, "cg_max_steps": 5, "cg_damping": 0.01, "line_search_shrinking_factor": 0.5}
    model = _trpo(make_vec_env("Pendulum-v1", 2, seed=7), 256, n_steps=64, normalize_advantage=False, **options)
    return _sums(model)


def trpo_gsde() -> Any:
    """Exploration that depends on the state."""
    return _sums(_trpo("Pendulum-v1", 256, use_sde=True, sde_sample_freq=4))


def trpo_sub_sampling() -> Any:
    """One row in three."""
    return _sums(_trpo("CartPole-v1", 128, sub_sampling_factor=3))


def trpo_pictures() -> Any:
    """Features that actor and critic share: who moves them?"""
    small = {"features_extractor_kwargs": {"features_dim": 16}}
    model = _trpo(worlds.Pictures(), 32, policy="CnnPolicy", n_steps=16, batch_size=8, policy_kwargs=small)
    return [_sums(model), len(model.policy.optimizer.state_dict()["state"])]


def trpo_files(folder: Path) -> Any:
    """There and back; the optimizer's state."""
    model = _trpo("CartPole-v1", 128, policy_kwargs={"net_arch": [8]})
    model.save(folder / "model")
    again = TRPO.load(folder / "model")
    fresh = TRPO("MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [8]})
    fresh.set_parameters(model.get_parameters())
    obs = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    acted = [m.predict(obs, deterministic=True)[0] for m in (model, again, fresh)]
    state = again.policy.optimizer.state_dict()["state"]
    return [
        acted,
        sorted(state),
        [float(entry["step"]) for entry in state.values()],
        again.cg_max_steps,
        again.ent_coef,
    ]


def trpo_subclassed() -> Any:
    """A policy of one's own, whose layers actor and critic share in part."""

    class Both(torch.nn.Module):
        latent_dim_pi = latent_dim_vf = 8

        def __init__(self, features: int) -> None:
            super().__init__()
            self.trunk, self.pi, self.vf = (torch.nn.Linear(n, 8) for n in (features, 8, 8))

        def forward(self, features: torch.Tensor) -> Any:
            return self.forward_actor(features), self.forward_critic(features)

        def forward_actor(self, features: torch.Tensor) -> torch.Tensor:
            return self.pi(self.trunk(features).tanh()).tanh()

        def forward_critic(self, features: torch.Tensor) -> torch.Tensor:
            return self.vf(self.trunk(features).tanh()).tanh()

    class Mine(trpo_policies.MlpPolicy):
        def _build_mlp_extractor(self) -> None:
            self.mlp_extractor = Both(self.features_dim)

    model = _trpo("CartPole-v1", 256, policy=Mine, policy_kwargs={"ortho_init": False})
    return [_sums(model), sorted(model.policy.optimizer.state_dict()["state"])]
