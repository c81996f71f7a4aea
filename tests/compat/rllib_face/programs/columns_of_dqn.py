"""What a learner of DQN is given, and what it reports: n-step returns with the discount that goes with them."""

from games import Calls, Counting
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner

CALLS = Calls()
SEEN = {"rewards": set()}


class Own(DQNTorchLearner):
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        CALLS.note("compute_loss_for_module")
        wanted = ("obs", "new_obs", "actions", "rewards", "terminateds", "weights", "n_step")
        SEEN["columns"] = {name: list(batch[name].shape[1:]) for name in wanted if name in batch}
        SEEN["outputs"] = sorted({"qf_preds", "qf_next_preds", "qf_target_next_preds"} & set(fwd_out))
        SEEN["most steps"] = max(SEEN.get("most steps", 0), int(batch["n_step"].max()))
        SEEN["rewards"] |= {round(float(value), 4) for value in batch["rewards"]}
        taken = fwd_out["qf_preds"].gather(-1, batch["actions"].long().unsqueeze(-1)).squeeze(-1)
        then = fwd_out["qf_target_next_preds"].max(-1).values.detach()
        goes_on = 1.0 - batch["terminateds"].float()
        target = batch["rewards"] + config.gamma ** batch["n_step"].float() * goes_on * then
        errors = taken - target
        loss = (batch["weights"] * errors.square()).mean()
        self.metrics.log_value((module_id, "my_errors"), errors.abs().mean().item(), window=1)
        return loss


class Watched(DQNTorchLearner):
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        CALLS.note("compute_loss_for_module of Watched")
        return super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)


def trained(learner, **more):
    config = DQNConfig().environment(Counting).env_runners(num_env_runners=0)
    config.training(
        train_batch_size_per_learner=8,
        num_steps_sampled_before_learning_starts=20,
        gamma=0.5,
        learner_class=learner,
        replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 100},
        **more,
    )
    config.rl_module(model_config={"fcnet_hiddens": [8], "head_fcnet_hiddens": [8]})
    algo = config.reporting(min_sample_timesteps_per_iteration=80, min_time_s_per_iteration=0).build_algo()
    result = algo.train()["learners"]["default_policy"]
    algo.stop()
    return result


def outcome():
    own = trained(Own, n_step=3)
    keys = {"qf_loss", "qf_mean", "qf_max", "qf_min", "td_error_mean", "my_errors", "total_loss"}
    watched, plain = trained(Watched), trained(None)
    seen = {
        **SEEN,
        "rewards": [
            SEEN["rewards"] <= {a + b / 2 + c / 4 for a in (0, 1) for b in (0, 1) for c in (0, 1)},
            len(SEEN["rewards"]) > 4,
        ],
        "reported by Own": sorted(keys & set(own)),
        "reported by Watched": sorted(keys & set(watched)),
        "reported": sorted(keys & set(plain)),
        "like": bool(abs(plain["qf_mean"]) < 2 and plain["qf_min"] <= plain["qf_mean"] <= plain["qf_max"]),
    }
    return {"equal": seen, "called": CALLS}
