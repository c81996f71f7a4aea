"""Training steps, groups of learners and algorithms of a program's own."""

import gymnasium as gym
import numpy as np
from games import CALLS, SEEN, Counting, count, moved, ppo, small, trained
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.ppo import PPO, PPOConfig
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.learner_group import LearnerGroup
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.execution.rollout_ops import synchronous_parallel_sample
from ray.rllib.utils.annotations import override
from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    ENV_RUNNER_SAMPLING_TIMER,
    LEARNER_RESULTS,
    LEARNER_UPDATE_TIMER,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    SYNCH_WORKER_WEIGHTS_TIMER,
    TIMERS,
)
from torch import nn

SPACES = gym.spaces.Box(-1.0, 1.0, (4,), np.float32), gym.spaces.Discrete(3)


class CountedGroup(LearnerGroup):
    def update(self, **kwargs):
        count("update")
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


def own_learner_group():
    """A group without an algorithm, that a config builds, and one of a class of its own, trained on episodes."""
    rng, found = np.random.default_rng(0), {}
    spaces = {"default_policy": SPACES, "__env__": SPACES}
    for name in ("build_learner_group", "Counted"):
        config = small(lr=0.02).environment("CartPole-v1", observation_space=SPACES[0], action_space=SPACES[1])
        config.learners(num_learners=0)
        if name == "Counted":
            group = CountedGroup(config=config.copy(), module_spec=config.get_multi_rl_module_spec(spaces=spaces))
        else:
            group = config.build_learner_group(spaces=spaces)
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
        found[name] = {
            "results": [type(results).__name__, len(results)],
            "losses": sorted({"policy_loss", "vf_loss", "entropy", "mean_kl_loss"} & set(results[0]["default_policy"])),
            "changed": moved(before, group.get_weights()["default_policy"]),
            "local": [group.is_local, group.is_remote],
            "state": sorted({"optimizer", "rl_module"} & set(group.get_state()["learner"])),
            "module": type(module.unwrapped()).__name__,
        }
        group.shutdown()
    return {**found, "order of calls": list(CALLS)}


class Watched(LearnerGroup):
    def update(self, **kwargs):
        count("update")
        SEEN["episodes"] = sum(map(len, kwargs["episodes"]))
        SEEN["how"] = kwargs["num_epochs"], kwargs["minibatch_size"], kwargs["shuffle_batch_per_epoch"]
        SEEN["steps"] = kwargs["timesteps"]["num_env_steps_sampled_lifetime"]
        results = super().update(**kwargs)
        SEEN["losses"] = sorted({"policy_loss", "vf_loss", "entropy"} & set(results[0]["default_policy"]))
        return results


class Config(PPOConfig):
    def build_learner_group(self, *, env=None, spaces=None, rl_module_spec=None, placement_group=None):
        count("build_learner_group")
        if rl_module_spec is None:
            rl_module_spec = self.get_multi_rl_module_spec(env=env, spaces=spaces)
        return Watched(config=self.copy(), module_spec=rl_module_spec, placement_group=placement_group)


def own_group_of_learners():
    """An algorithm whose config builds a group of a program's own class."""
    algo = ppo(kind=Config, lr=0.01).build_algo()
    before = {name: value.copy() for name, value in algo.learner_group.get_weights()["default_policy"].items()}
    for _ in range(2):
        result = algo.train()
    found = {
        **SEEN,
        "group": type(algo.learner_group).__name__,
        "local": bool(algo.learner_group.is_local),
        "learned": moved(before, algo.learner_group.get_weights()["default_policy"]),
        "sampled": int(result["env_runners"]["num_env_steps_sampled_lifetime"]),
        "reported": sorted({"policy_loss", "vf_loss"} & set(result["learners"]["default_policy"])),
    }
    algo.stop()
    return found


class Twice(PPO):
    @override(Algorithm)
    def training_step(self):
        count("training_step")
        with self.metrics.log_time((TIMERS, ENV_RUNNER_SAMPLING_TIMER)):
            episodes, results = synchronous_parallel_sample(
                worker_set=self.env_runner_group,
                max_env_steps=self.config.total_train_batch_size,
                sample_timeout_s=self.config.sample_timeout_s,
                _uses_new_env_runners=True,
                _return_metrics=True,
            )
        self.metrics.aggregate(results, key=ENV_RUNNER_RESULTS)
        SEEN["steps"] = sum(map(len, episodes))
        SEEN["kind"] = type(episodes[0]).__name__
        SEEN["ended"] = sum(one.is_done for one in episodes)
        self.metrics.log_value("my_steps", SEEN["steps"], window=1)
        for _ in range(2):
            with self.metrics.log_time((TIMERS, LEARNER_UPDATE_TIMER)):
                learned = self.learner_group.update(
                    episodes=episodes,
                    timesteps={
                        NUM_ENV_STEPS_SAMPLED_LIFETIME: self.metrics.peek(
                            (ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME)
                        )
                    },
                    num_epochs=self.config.num_epochs,
                    minibatch_size=self.config.minibatch_size,
                    shuffle_batch_per_epoch=self.config.shuffle_batch_per_epoch,
                )
            self.metrics.aggregate(learned, key=LEARNER_RESULTS)
        modules = set(learned[0].keys()) - {"__all_modules__"}
        SEEN["modules"] = sorted(modules)
        with self.metrics.log_time((TIMERS, SYNCH_WORKER_WEIGHTS_TIMER)):
            self.env_runner_group.sync_weights(
                from_worker_or_learner_group=self.learner_group, policies=modules, inference_only=True
            )


def own_training_step():
    """It samples, changes rewards, learns twice, and logs what it has done."""
    algo = ppo(kind=lambda: PPOConfig(algo_class=Twice), lr=0.01).build_algo()
    before = algo.get_module().get_state()
    results = [algo.train() for _ in range(3)]
    found = {
        **SEEN,
        "my_steps": [float(one["my_steps"]) for one in results],
        "sampled": [int(one["env_runners"]["num_env_steps_sampled_lifetime"]) for one in results],
        "losses": sorted({"policy_loss", "vf_loss", "entropy"} & set(results[-1]["learners"]["default_policy"])),
        "learned": moved(before, algo.get_module().get_state()),
        "iterations": results[-1]["training_iteration"],
        "order of calls": list(CALLS),
    }
    algo.stop()
    return found


class Returns(ConnectorV2):
    def __call__(self, *, rl_module, batch, episodes, explore=None, shared_data=None, metrics=None, **kwargs):
        count("Returns")
        for episode in self.single_agent_episode_iterator(episodes, agents_that_stepped_only=False):
            rewards = episode.get_rewards()
            found = np.cumsum(np.asarray(rewards)[::-1])[::-1].astype(np.float32)
            self.add_n_batch_items(
                batch=batch,
                column="returns_to_go",
                items_to_add=found,
                num_items=len(episode),
                single_agent_episode=episode,
            )
        return batch


class Chooses(TorchRLModule):
    @override(TorchRLModule)
    def setup(self):
        count("setup")
        width = self.model_config["hidden_dim"]
        self._net = nn.Sequential(
            nn.Linear(self.observation_space.shape[0], width), nn.ReLU(), nn.Linear(width, self.action_space.n)
        )

    @override(TorchRLModule)
    def _forward(self, batch, **kwargs):
        return {Columns.ACTION_DIST_INPUTS: self._net(batch[Columns.OBS])}


class ReinforceLearner(TorchLearner):
    @override(TorchLearner)
    def build(self):
        super().build()
        count("build")
        if self.config.add_default_connectors_to_learner_pipeline and self._learner_connector is not None:
            self._learner_connector.prepend(Returns())

    @override(TorchLearner)
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        count("compute_loss_for_module")
        SEEN["columns"] = sorted(
            {"obs", "actions", "rewards", "terminateds", "truncateds", "returns_to_go"} & set(batch)
        )
        kind = self.module[module_id].get_train_action_dist_cls()
        logp = kind.from_logits(fwd_out[Columns.ACTION_DIST_INPUTS]).logp(batch[Columns.ACTIONS])
        self.metrics.log_value((module_id, "mean_logp"), logp.mean().item(), window=1)
        return -(logp * batch["returns_to_go"]).mean()


class ReinforceConfig(AlgorithmConfig):
    episodes_per_batch = 5

    def __init__(self, algo_class=None):
        super().__init__(algo_class=algo_class or Reinforce)
        self.batch_mode = "complete_episodes"
        self.num_env_runners = 0

    @override(AlgorithmConfig)
    def get_default_rl_module_spec(self):
        return RLModuleSpec(module_class=Chooses, model_config={"hidden_dim": 16})

    @override(AlgorithmConfig)
    def get_default_learner_class(self):
        return ReinforceLearner


class Reinforce(Algorithm):
    @classmethod
    @override(Algorithm)
    def get_default_config(cls):
        return ReinforceConfig()

    @override(Algorithm)
    def training_step(self):
        count("training_step")
        sampled = self.env_runner_group.foreach_env_runner(
            lambda runner: (runner.sample(num_episodes=self.config.episodes_per_batch), runner.get_metrics()),
            local_env_runner=self.env_runner_group.num_remote_workers() <= 0,
        )
        episodes = [one for part in sampled for one in part[0]]
        self.metrics.aggregate([part[1] for part in sampled], key=ENV_RUNNER_RESULTS)
        SEEN["episodes"] = [len(episodes), sum(map(len, episodes)), all(one.is_done for one in episodes)]
        learned = self.learner_group.update(
            episodes=episodes,
            timesteps={
                NUM_ENV_STEPS_SAMPLED_LIFETIME: self.metrics.peek((ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME))
            },
        )
        self.metrics.aggregate(learned, key=LEARNER_RESULTS)
        self.env_runner_group.sync_weights(from_worker_or_learner_group=self.learner_group, inference_only=True)


def own_algorithm():
    """REINFORCE from the ground: a config, a module, a learner and a training step."""
    with trained(ReinforceConfig().environment(Counting).training(lr=0.02), 25) as (_, results):
        first, last = (results[i]["env_runners"]["episode_return_mean"] for i in (0, -1))
    return {
        **SEEN,
        "learners": sorted({"mean_logp", "total_loss"} & set(results[0]["learners"]["default_policy"])),
        "sampled": [int(one["env_runners"]["num_env_steps_sampled_lifetime"]) for one in results[:3]],
        "learns": bool(last > first + 1.5),
        "order of calls": list(CALLS),
    }
