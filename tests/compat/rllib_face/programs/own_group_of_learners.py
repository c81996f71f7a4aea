"""An algorithm whose config builds a learner group of a program's own class."""

from games import Calls, Counting
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.learner.learner_group import LearnerGroup

CALLS = Calls()
SEEN = {}


class Watched(LearnerGroup):
    def update(self, **kwargs):
        CALLS.note("update")
        SEEN["episodes"] = sum(map(len, kwargs["episodes"]))
        SEEN["how"] = kwargs["num_epochs"], kwargs["minibatch_size"], kwargs["shuffle_batch_per_epoch"]
        SEEN["steps"] = kwargs["timesteps"]["num_env_steps_sampled_lifetime"]
        results = super().update(**kwargs)
        SEEN["losses"] = sorted({"policy_loss", "vf_loss", "entropy"} & set(results[0]["default_policy"]))
        return results

    def get_weights(self, *args, **kwargs):
        CALLS.note("get_weights")
        return super().get_weights(*args, **kwargs)


class Config(PPOConfig):
    def build_learner_group(self, *, env=None, spaces=None, rl_module_spec=None, placement_group=None):
        CALLS.note("build_learner_group")
        if rl_module_spec is None:
            rl_module_spec = self.get_multi_rl_module_spec(env=env, spaces=spaces)
        return Watched(config=self.copy(), module_spec=rl_module_spec, placement_group=placement_group)


def outcome():
    config = Config().environment(Counting).env_runners(num_env_runners=0)
    config.training(train_batch_size_per_learner=60, minibatch_size=30, num_epochs=2, lr=0.01)
    algo = config.rl_module(model_config={"fcnet_hiddens": [8]}).build_algo()
    before = algo.learner_group.get_weights()["default_policy"]
    before = {name: value.copy() for name, value in before.items()}
    for _ in range(2):
        result = algo.train()
    after = algo.learner_group.get_weights()["default_policy"]
    equal = {
        **SEEN,
        "group": type(algo.learner_group).__name__,
        "local": bool(algo.learner_group.is_local),
        "learned": all(bool((before[name] != after[name]).any()) for name in before if name.endswith("weight")),
        "sampled": int(result["env_runners"]["num_env_steps_sampled_lifetime"]),
        "reported": sorted({"policy_loss", "vf_loss"} & set(result["learners"]["default_policy"])),
    }
    algo.stop()
    return {"equal": equal, "called": {name: CALLS[name] for name in ("build_learner_group", "update")}}
