"""A learner of SAC with a loss beside RLlib's, that looks at its three optimizers."""

from games import Calls
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.algorithms.sac.torch.sac_torch_learner import SACTorchLearner

CALLS = Calls()
SEEN = {}


class Watched(SACTorchLearner):
    def build(self):
        super().build()
        CALLS.note("build")
        SEEN["optimizers"] = sorted(name for name, _ in self.get_optimizers_for_module("default_policy"))

    def before_gradient_based_update(self, *, timesteps):
        super().before_gradient_based_update(timesteps=timesteps)
        CALLS.note("before_gradient_based_update")

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        CALLS.note("compute_loss_for_module")
        wanted = ("obs", "new_obs", "actions", "rewards", "terminateds", "weights", "n_step")
        SEEN["columns"] = {name: list(batch[name].shape[1:]) for name in wanted if name in batch}
        loss = super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)
        SEEN["loss"] = loss.numel() == 1
        self.metrics.log_value((module_id, "mean_reward"), batch["rewards"].mean().item(), window=1)
        return loss

    def after_gradient_based_update(self, *, timesteps):
        super().after_gradient_based_update(timesteps=timesteps)
        CALLS.note("after_gradient_based_update")


def outcome():
    config = SACConfig().environment("Pendulum-v1").env_runners(num_env_runners=0, rollout_fragment_length=1)
    config.training(
        train_batch_size_per_learner=16,
        num_steps_sampled_before_learning_starts=30,
        actor_lr=1e-3,
        critic_lr=2e-3,
        alpha_lr=3e-3,
        learner_class=Watched,
        replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 500},
    )
    config.rl_module(model_config={"fcnet_hiddens": [8], "head_fcnet_hiddens": []})
    algo = config.reporting(min_sample_timesteps_per_iteration=60, min_time_s_per_iteration=0).build_algo()
    result = algo.train()["learners"]["default_policy"]
    algo.stop()
    keys = {
        *("policy_loss", "qf_loss", "alpha_loss", "alpha_value", "log_alpha_value", "target_entropy"),
        *("qf_mean", "qf_max", "qf_min", "td_error_mean", "mean_reward", "qf_twin_loss"),
    }
    SEEN["reported"] = sorted(keys & set(result))
    SEEN["rates"] = {k: round(float(v), 6) for k, v in sorted(result.items()) if k.endswith("_learning_rate")}
    SEEN["target_entropy"] = round(float(result["target_entropy"]), 4)
    return {"equal": SEEN, "called": CALLS}
