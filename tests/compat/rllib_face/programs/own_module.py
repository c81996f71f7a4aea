"""A module without a catalog, for continuous actions, with a distribution of its own."""

import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.models.torch.torch_distributions import TorchDistribution
from torch import nn

CALLS = {}


def count(name):
    CALLS[name] = CALLS.get(name, 0) + 1


class Laplace(TorchDistribution):
    """Heavier tails than a Gaussian's, of one width."""

    def _get_torch_distribution(self, logits):
        count("_get_torch_distribution")
        return torch.distributions.Laplace(logits, torch.full_like(logits, 0.5))

    @classmethod
    def from_logits(cls, logits, **kwargs):
        return cls(logits=logits)

    @staticmethod
    def required_input_dim(space, **kwargs):
        return space.shape[0]

    def logp(self, value, **kwargs):
        count("logp")
        return self._dist.log_prob(value).sum(-1)

    def entropy(self, **kwargs):
        count("entropy")
        return self._dist.entropy().sum(-1)

    def kl(self, other, **kwargs):
        count("kl")
        return torch.distributions.kl_divergence(self._dist, other._dist).sum(-1)

    def to_deterministic(self):
        raise AssertionError("nothing is evaluated here")


class Small(TorchRLModule, ValueFunctionAPI):
    def setup(self):
        count("setup")
        width = self.model_config["width"]
        self.body = nn.Sequential(nn.Linear(self.observation_space.shape[0], width), nn.Tanh())
        self.mean, self.value = nn.Linear(width, self.action_space.shape[0]), nn.Linear(width, 1)
        self.action_dist_cls = Laplace

    def _forward(self, batch, **kwargs):
        count("_forward")
        features = self.body(batch[Columns.OBS])
        return {Columns.ACTION_DIST_INPUTS: self.mean(features)}

    def _forward_train(self, batch, **kwargs):
        count("_forward_train")
        features = self.body(batch[Columns.OBS])
        return {Columns.ACTION_DIST_INPUTS: self.mean(features), Columns.EMBEDDINGS: features}

    def compute_values(self, batch, embeddings=None):
        count("compute_values with embeddings" if embeddings is not None else "compute_values")
        features = self.body(batch[Columns.OBS]) if embeddings is None else embeddings
        return self.value(features).squeeze(-1)


def outcome():
    config = PPOConfig().environment("Pendulum-v1").env_runners(num_env_runners=0)
    config = config.training(train_batch_size_per_learner=60, minibatch_size=30, num_epochs=1, use_kl_loss=True)
    spec = RLModuleSpec(module_class=Small, model_config={"width": 6})
    algo = config.rl_module(rl_module_spec=spec).build_algo()
    result = algo.train()["learners"]["default_policy"]
    module = algo.learner_group._learner.module["default_policy"].unwrapped()
    shapes = {name: list(value.shape) for name, value in module.state_dict().items()}
    algo.stop()
    entropy = float(torch.distributions.Laplace(0.0, 0.5).entropy())
    return {"equal": {"shapes": shapes, "entropy": abs(result["entropy"] - entropy) < 1e-4}, "called": CALLS}
