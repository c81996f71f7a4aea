"""Learners of one's own: a further term in PPO's loss, two optimizers, gradients looked at, a loss of DQN's."""

import torch
from games import Counting
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.columns import Columns

CALLS = {}
SEEN = {}


def count(name):
    CALLS[name] = CALLS.get(name, 0) + 1


class Regularised(PPOTorchLearner):
    def build(self):
        super().build()
        count("build")

    def configure_optimizers_for_module(self, module_id, config=None):
        count("configure_optimizers_for_module")
        module = self.module[module_id]
        parts = {
            "of_policy": self.get_parameters(module.encoder.actor_encoder) + self.get_parameters(module.pi),
            "of_values": self.get_parameters(module.encoder.critic_encoder) + self.get_parameters(module.vf),
        }
        rates = {"of_policy": config.lr, "of_values": config.learner_config_dict["rate_of_values"]}
        for name, params in parts.items():
            self.register_optimizer(
                module_id=module_id,
                optimizer_name=name,
                optimizer=torch.optim.Adam(params=params),
                params=params,
                lr_or_lr_schedule=rates[name],
            )

    def compute_losses(self, *, fwd_out, batch):
        count("compute_losses")
        return super().compute_losses(fwd_out=fwd_out, batch=batch)

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        count("compute_loss_for_module")
        loss = super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)
        weights = self.get_parameters(self.module[module_id])
        mean = torch.mean(torch.stack([weight.abs().mean() for weight in weights]))
        self.metrics.log_value((module_id, "mean_weight"), mean.item(), window=1)
        wanted = ("OBS", "ACTIONS", "ACTION_LOGP", "ACTION_DIST_INPUTS", "ADVANTAGES", "VALUE_TARGETS")
        SEEN["columns"] = [name for name in wanted if getattr(Columns, name) in batch]
        SEEN["outputs"] = sorted(fwd_out)
        SEEN["scalar"] = loss.numel() == 1
        return loss + config.learner_config_dict["weight"] * mean

    def postprocess_gradients(self, gradients_dict):
        count("postprocess_gradients")
        SEEN["gradients"] = len(gradients_dict)
        return super().postprocess_gradients(gradients_dict)

    def postprocess_gradients_for_module(self, *, module_id, config=None, module_gradients_dict):
        count("postprocess_gradients_for_module")
        found = super().postprocess_gradients_for_module(
            module_id=module_id, config=config, module_gradients_dict=module_gradients_dict
        )
        SEEN["of_module"] = len(found)
        return found

    def apply_gradients(self, gradients_dict):
        count("apply_gradients")
        super().apply_gradients(gradients_dict)

    def before_gradient_based_update(self, *, timesteps):
        super().before_gradient_based_update(timesteps=timesteps)
        count("before_gradient_based_update")
        SEEN.setdefault("before", []).append(timesteps["num_env_steps_sampled_lifetime"])

    def after_gradient_based_update(self, *, timesteps):
        super().after_gradient_based_update(timesteps=timesteps)
        count("after_gradient_based_update")
        optimizers = self.get_optimizers_for_module("default_policy")
        SEEN["rates"] = {name: round(float(one.param_groups[0]["lr"]), 6) for name, one in optimizers}


class Plain(DQNTorchLearner):
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        count("compute_loss_for_module of DQN")
        actions = batch[Columns.ACTIONS].long().unsqueeze(-1)
        values = fwd_out["qf_preds"].gather(-1, actions).squeeze(-1)
        SEEN["columns of DQN"] = sorted({"obs", "new_obs", "actions", "rewards", "terminateds", "weights"} & set(batch))
        then = fwd_out["qf_target_next_preds"].max(-1).values.detach()
        goes_on = 1.0 - batch[Columns.TERMINATEDS].float()
        errors = values - (batch[Columns.REWARDS] + config.gamma * goes_on * then)
        self.metrics.log_value((module_id, "size_of_errors"), errors.detach().abs().mean().item(), window=1)
        return errors.square().mean()


def outcome():
    config = PPOConfig().environment(Counting).env_runners(num_env_runners=0).learners(num_learners=0)
    config.training(
        train_batch_size_per_learner=60,
        minibatch_size=30,
        num_epochs=2,
        lr=[[0, 0.001], [120, 0.002]],
        grad_clip=0.5,
        learner_class=Regularised,
        learner_config_dict={"weight": 0.02, "rate_of_values": 0.004},
    )
    config.rl_module(model_config={"fcnet_hiddens": [8], "vf_share_layers": False})
    algo = config.build_algo()
    results = [algo.train()["learners"]["default_policy"] for _ in range(2)]
    own = type(algo.learner_group._learner).__name__
    algo.stop()

    config = DQNConfig().environment(Counting).env_runners(num_env_runners=0).learners(num_learners=0)
    config.training(
        train_batch_size_per_learner=8,
        num_steps_sampled_before_learning_starts=10,
        learner_class=Plain,
        double_q=False,
        replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 100},
    )
    config.rl_module(model_config={"fcnet_hiddens": [8], "head_fcnet_hiddens": [8]})
    algo = config.reporting(min_sample_timesteps_per_iteration=20, min_time_s_per_iteration=0).build_algo()
    of_dqn = algo.train()["learners"]["default_policy"]
    algo.stop()
    equal = {
        **SEEN,
        "logged": ["mean_weight" in result for result in results],
        "learner": own,
        "logged by DQN": "size_of_errors" in of_dqn,
    }
    return {"equal": equal, "called": CALLS}
