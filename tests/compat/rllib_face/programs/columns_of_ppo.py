"""What a learner of PPO is given: a loss that looks at all columns of its batch."""

from games import Calls, Counting
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.columns import Columns
from ray.rllib.utils.annotations import override

CALLS = Calls()
SEEN = {}


class Looks(PPOTorchLearner):
    @override(PPOTorchLearner)
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        CALLS.note("compute_loss_for_module")
        loss = super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)
        wanted = (
            *(Columns.OBS, Columns.ACTIONS, Columns.REWARDS, Columns.TERMINATEDS, Columns.TRUNCATEDS),
            *(Columns.ACTION_LOGP, Columns.ACTION_DIST_INPUTS),
            *(Columns.ADVANTAGES, Columns.VALUE_TARGETS, Columns.LOSS_MASK),
        )
        rows = len(batch[Columns.OBS])
        SEEN["columns"] = {name: list(batch[name].shape[1:]) for name in wanted if name in batch}
        SEEN["kinds"] = {name: batch[name].dtype.is_floating_point for name in (Columns.OBS, Columns.REWARDS)}
        SEEN["rows"] = rows
        ends = batch[Columns.TERMINATEDS].float()
        SEEN["ends"] = SEEN.get("ends", 0) + int(ends.sum())
        SEEN["truncated"] = int(batch[Columns.TRUNCATEDS].float().sum())
        right = (batch[Columns.REWARDS] == (batch[Columns.ACTIONS] == 1).float())[batch[Columns.LOSS_MASK]].all()
        SEEN["rewards are those of actions"] = bool(right)
        self.metrics.log_value((module_id, "share_of_ends"), ends.mean().item(), window=1)
        return loss + 0.01 * (fwd_out[Columns.ACTION_DIST_INPUTS] ** 2).mean()


def outcome():
    config = PPOConfig().environment(Counting).env_runners(num_env_runners=0)
    config.training(train_batch_size_per_learner=40, minibatch_size=40, num_epochs=1, learner_class=Looks)
    algo = config.rl_module(model_config={"fcnet_hiddens": [8]}).build_algo()
    result = algo.train()["learners"]["default_policy"]
    algo.stop()
    SEEN["share_of_ends"] = round(float(result["share_of_ends"]), 6)
    SEEN["results"] = sorted(
        {"policy_loss", "vf_loss", "vf_loss_unclipped", "entropy", "mean_kl_loss", "total_loss", "vf_explained_var"}
        & set(result)
    )
    SEEN["gradients"] = "gradients_default_optimizer_global_norm" in result
    return {"equal": SEEN, "called": CALLS}
