"""Whole episodes, actions without exploration, rows in order, and PPO without a critic."""

import gymnasium as gym
import numpy as np
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner

LENGTHS = [3, 5, 4, 6]
DONE, ROWS = [], []


class Counted(gym.Env):
    """Episodes of 3, 5, 4 and 6 steps in turn, with rewards of 1; what was done at which step is kept."""

    observation_space = gym.spaces.Box(-10, 10, (1,), np.float32)
    action_space = gym.spaces.Discrete(5)

    def __init__(self, config=None):
        self.episode, self.t = -1, 0

    def reset(self, *, seed=None, options=None):
        self.episode, self.t = self.episode + 1, 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        DONE.append((self.t, int(action)))
        self.t += 1
        return np.full(1, self.t, np.float32), 1.0, self.t >= LENGTHS[self.episode % 4], False, {}


class Reads(PPOTorchLearner):
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        seen = batch["obs"][batch["loss_mask"]] if "loss_mask" in batch else batch["obs"]
        ROWS.extend(seen[:, 0].tolist())
        return super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)


def base(cls, **training):
    config = cls().environment(Counted, disable_env_checking=True).env_runners(num_env_runners=0).debugging(seed=0)
    config.rl_module(model_config={"fcnet_hiddens": [8]}).reporting(min_sample_timesteps_per_iteration=20)
    if cls is DQNConfig:
        return config.training(num_steps_sampled_before_learning_starts=10, **training)
    return config.training(train_batch_size_per_learner=20, minibatch_size=10, num_epochs=2, **training)


def trained(config):
    DONE.clear()
    algo = config.build_algo()
    results = [algo.train() for _ in range(2)]
    algo.stop()
    return results


def whole(cls):
    results = trained(base(cls).env_runners(batch_mode="complete_episodes"))
    counts = [[int(r["env_runners"][name]) for name in ("num_env_steps_sampled", "num_episodes")] for r in results]
    batches = [r["learners"]["default_policy"]["num_module_steps_trained"] // 32 for r in results]
    return {"counts": counts, "batches": batches if cls is DQNConfig else None}


def repeats(config):
    """Whether the same was done whenever the same was seen."""
    trained(config)
    return len(set(DONE)) == len({t for t, _ in DONE})


def outcome():
    without = trained(base(PPOConfig, use_critic=False))[0]["learners"]["default_policy"]
    trained(base(PPOConfig, shuffle_batch_per_epoch=False, learner_class=Reads))
    return {
        "equal": {
            "PPO whole": whole(PPOConfig),
            "DQN whole": whole(DQNConfig),
            "PPO explores": not repeats(base(PPOConfig, lr=0.0)),
            "PPO does not": repeats(base(PPOConfig, lr=0.0).env_runners(explore=False)),
            "DQN does not": repeats(base(DQNConfig, lr=0.0).env_runners(explore=False)),
            "DQN begins without random actions": repeats(base(DQNConfig, lr=0.0, epsilon=0.0)),
            "losses of values": [float(without[name]) for name in ("vf_loss", "vf_loss_unclipped")],
            "rows": ROWS[:40],
        },
        "called": {},
    }
