"""A training step of one's own: it samples, changes rewards, learns twice, and logs what it has done."""

from games import Calls, Counting
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.ppo import PPO, PPOConfig
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

CALLS = Calls()
SEEN = {}


class Twice(PPO):
    @override(Algorithm)
    def training_step(self):
        CALLS.note("training_step")
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


def outcome():
    config = PPOConfig(algo_class=Twice).environment(Counting).env_runners(num_env_runners=0)
    config.training(train_batch_size_per_learner=60, minibatch_size=30, num_epochs=2, lr=0.01)
    algo = config.rl_module(model_config={"fcnet_hiddens": [8]}).build_algo()
    before = algo.get_module().get_state()
    results = [algo.train() for _ in range(3)]
    after = algo.get_module().get_state()
    equal = {
        **SEEN,
        "my_steps": [float(one["my_steps"]) for one in results],
        "sampled": [int(one["env_runners"]["num_env_steps_sampled_lifetime"]) for one in results],
        "losses": sorted({"policy_loss", "vf_loss", "entropy"} & set(results[-1]["learners"]["default_policy"])),
        "learned": all(bool((before[name] != after[name]).any()) for name in before if name.endswith("weight")),
        "iterations": results[-1]["training_iteration"],
    }
    algo.stop()
    return {"equal": equal, "called": CALLS}
