"""Learning rates by torch's schedulers, and by ones of a program's own."""

from functools import partial

import torch
from games import Calls, Counting
from ray.rllib.algorithms.ppo import PPOConfig

CALLS = Calls()


class Halved(torch.optim.lr_scheduler.LRScheduler):
    def get_lr(self):
        CALLS.note("get_lr")
        return [group["initial_lr"] * 0.5**self.last_epoch for group in self.optimizer.param_groups]


def outcome():
    config = PPOConfig().environment(Counting).env_runners(num_env_runners=0)
    config.training(train_batch_size_per_learner=40, minibatch_size=20, num_epochs=2, lr=0.016)
    config.experimental(_torch_lr_scheduler_classes=[partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.5)])
    algo = config.rl_module(model_config={"fcnet_hiddens": [8]}).build_algo()
    torch_s = [algo.train()["learners"]["default_policy"]["default_optimizer_learning_rate"] for _ in range(3)]
    algo.stop()

    config = PPOConfig().environment(Counting).env_runners(num_env_runners=0)
    config.training(train_batch_size_per_learner=40, minibatch_size=40, num_epochs=1, lr=0.016)
    config.experimental(
        _torch_lr_scheduler_classes=[Halved, partial(torch.optim.lr_scheduler.ConstantLR, factor=0.5, total_iters=2)]
    )
    algo = config.rl_module(model_config={"fcnet_hiddens": [8]}).build_algo()
    both = [algo.train()["learners"]["default_policy"]["default_optimizer_learning_rate"] for _ in range(3)]
    algo.stop()
    refused = ""
    try:
        PPOConfig().training(lr=[[0, 0.1], [10, 0.2]]).experimental(_torch_lr_scheduler_classes=[Halved]).environment(
            Counting
        ).build_algo()
    except ValueError:
        refused = "ValueError"
    equal = {
        "torch's": [round(float(rate), 8) for rate in torch_s],
        "both": [round(float(rate), 8) for rate in both],
        "points beside them": refused,
    }
    return {"equal": equal, "called": CALLS}
