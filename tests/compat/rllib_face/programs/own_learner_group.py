"""Learners without an algorithm: a group that a config builds, and one of a class of its own, trained on episodes."""

import gymnasium as gym
import numpy as np
from games import Calls
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.learner.learner_group import LearnerGroup
from ray.rllib.env.single_agent_episode import SingleAgentEpisode

CALLS = Calls()
SPACES = gym.spaces.Box(-1.0, 1.0, (4,), np.float32), gym.spaces.Discrete(3)


class Counted(LearnerGroup):
    def update(self, **kwargs):
        CALLS.note("update")
        return super().update(**kwargs)


def episode(length, rng):
    actions = rng.integers(0, 3, length)
    return SingleAgentEpisode(
        observations=list(rng.uniform(-1, 1, (length + 1, 4)).astype(np.float32)),
        observation_space=SPACES[0],
        action_space=SPACES[1],
        actions=list(actions),
        rewards=[float(action == 1) for action in actions],
        terminated=True,
        extra_model_outputs={
            "action_logp": list(np.full(length, np.log(1 / 3), np.float32)),
            "action_dist_inputs": list(np.zeros((length, 3), np.float32)),
        },
        len_lookback_buffer=0,
    )


def outcome():
    rng, found = np.random.default_rng(0), {}
    for name in ("build_learner_group", "Counted"):
        config = PPOConfig().environment("CartPole-v1", observation_space=SPACES[0], action_space=SPACES[1])
        config.training(lr=0.02).rl_module(model_config={"fcnet_hiddens": [8]}).learners(num_learners=0)
        if name == "Counted":
            spaces = {"default_policy": SPACES, "__env__": SPACES}
            group = Counted(config=config.copy(), module_spec=config.get_multi_rl_module_spec(spaces=spaces))
        else:
            group = config.build_learner_group(spaces={"default_policy": SPACES, "__env__": SPACES})
        module = group._learner.module["default_policy"]
        before = {key: value.copy() for key, value in group.get_weights()["default_policy"].items()}
        for _ in range(6):
            results = group.update(
                episodes=[episode(10, rng) for _ in range(4)],
                timesteps={"num_env_steps_sampled_lifetime": 40},
                num_epochs=3,
                minibatch_size=20,
                shuffle_batch_per_epoch=True,
            )
        after = group.get_weights()["default_policy"]
        result = results[0]["default_policy"]
        found[name] = {
            "results": [type(results).__name__, len(results)],
            "losses": sorted({"policy_loss", "vf_loss", "entropy", "mean_kl_loss"} & set(result)),
            "changed": all(bool((before[key] != after[key]).any()) for key in before if key.endswith("weight")),
            "local": [group.is_local, group.is_remote],
            "state": sorted({"optimizer", "rl_module"} & set(group.get_state()["learner"])),
            "module": type(module.unwrapped()).__name__,
        }
        group.shutdown()
    return {"equal": found, "called": CALLS}
