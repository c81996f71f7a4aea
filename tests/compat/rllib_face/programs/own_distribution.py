"""A catalog with a distribution of its own, whose methods are counted."""

from games import TAKEN, Counting
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.ppo_catalog import PPOCatalog
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.models.torch.torch_distributions import TorchCategorical

CALLS = {}


def count(name):
    CALLS[name] = CALLS.get(name, 0) + 1


class Counted(TorchCategorical):
    def sample(self, **kwargs):
        count("sample")
        return super().sample(**kwargs)

    def logp(self, value, **kwargs):
        count("logp")
        return super().logp(value, **kwargs)

    def entropy(self, **kwargs):
        count("entropy")
        return super().entropy(**kwargs)

    def kl(self, other, **kwargs):
        count("kl")
        assert type(other) is Counted
        return super().kl(other, **kwargs)

    def to_deterministic(self):
        count("to_deterministic")
        return super().to_deterministic()


class CountedCatalog(PPOCatalog):
    def get_action_dist_cls(self, framework):
        count("get_action_dist_cls")
        return Counted


def outcome():
    config = PPOConfig().environment(Counting, disable_env_checking=True).env_runners(num_env_runners=0)
    config = config.training(train_batch_size_per_learner=100, minibatch_size=50, num_epochs=2, use_kl_loss=True)
    config = config.rl_module(
        rl_module_spec=RLModuleSpec(catalog_class=CountedCatalog), model_config={"fcnet_hiddens": [8]}
    )
    config = config.evaluation(
        evaluation_interval=1,
        evaluation_duration=5,
        evaluation_config={"explore": False, "env_config": {"name": "evaluation"}},
    )
    algo = config.build_algo()
    result = algo.train()
    algo.stop()
    learned = result["learners"]["default_policy"]
    return {
        "equal": {
            "entropy": 0.9 < learned["entropy"] < 1.1,
            "kl": 0.0 <= learned["mean_kl_loss"] < 0.1,
            "training steps": sum(TAKEN["training"]),
            "kl and entropy once a gradient step": CALLS["kl"] == CALLS["entropy"],
        },
        "called": CALLS,
    }
