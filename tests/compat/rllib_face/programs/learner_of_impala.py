"""Learners of IMPALA and APPO with terms of their own."""

from games import Calls, Counting
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.appo.torch.appo_torch_learner import APPOTorchLearner
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.impala.torch.impala_torch_learner import IMPALATorchLearner
from ray.rllib.core.columns import Columns

CALLS = Calls()
SEEN = {}


class Looks:
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        name = type(self).__name__
        CALLS.note(f"compute_loss_for_module of {name}")
        loss = super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)
        wanted = ("obs", "actions", "rewards", "terminateds", "truncateds", "action_logp")
        SEEN[name] = sorted(set(wanted) & set(batch))
        self.metrics.log_value(
            (module_id, "size_of_logits"), fwd_out[Columns.ACTION_DIST_INPUTS].abs().mean().item(), window=1
        )
        return loss + 0.01 * fwd_out[Columns.ACTION_DIST_INPUTS].square().mean()


class OfIMPALA(Looks, IMPALATorchLearner):
    pass


class OfAPPO(Looks, APPOTorchLearner):
    pass


def outcome():
    found = {}
    for kind, learner in ((IMPALAConfig, OfIMPALA), (APPOConfig, OfAPPO)):
        config = kind().environment(Counting).env_runners(num_env_runners=0, rollout_fragment_length=10)
        config.learners(num_learners=0).training(train_batch_size_per_learner=40, learner_class=learner)
        config.rl_module(model_config={"fcnet_hiddens": [8]})
        algo = config.reporting(min_time_s_per_iteration=0, min_sample_timesteps_per_iteration=80).build_algo()
        result = {}
        for _ in range(12):
            result |= algo.train()["learners"].get("default_policy", {})
            if "size_of_logits" in result:
                break
        algo.stop()
        found[learner.__name__] = [
            sorted({"size_of_logits", "vf_loss", "entropy"} & set(result)),
            SEEN[learner.__name__],
        ]
    return {"equal": found, "called": CALLS}
