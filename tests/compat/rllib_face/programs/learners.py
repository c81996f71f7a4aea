"""Learners of a program's own: losses, optimizers, learning rates, and what they are given and report."""

from functools import partial

import torch
from games import CALLS, SEEN, count, dqn, learned, ppo, refusal, trained
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.appo.torch.appo_torch_learner import APPOTorchLearner
from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.impala.torch.impala_torch_learner import IMPALATorchLearner
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.algorithms.sac.torch.sac_torch_learner import SACTorchLearner
from ray.rllib.core.columns import Columns
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.utils.annotations import override


class NStep(DQNTorchLearner):
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        count("compute_loss_for_module")
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


class WatchedDQN(DQNTorchLearner):
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        count("compute_loss_for_module of Watched")
        return super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)


def columns_of_dqn():
    """N-step returns with the discount that goes with them."""
    SEEN["rewards"] = set()
    options = {"train_batch_size_per_learner": 8, "num_steps_sampled_before_learning_starts": 20, "gamma": 0.5}
    options["replay_buffer_config"] = {"type": "EpisodeReplayBuffer", "capacity": 100}
    own, watched, plain = (
        learned(dqn(steps=80, learner_class=learner, **options, **more))[0]
        for learner, more in ((NStep, {"n_step": 3}), (WatchedDQN, {}), (None, {}))
    )
    keys = {"qf_loss", "qf_mean", "qf_max", "qf_min", "td_error_mean", "my_errors", "total_loss"}
    sums = {a + b / 2 + c / 4 for a in (0, 1) for b in (0, 1) for c in (0, 1)}
    return {
        **SEEN,
        "rewards": [SEEN["rewards"] <= sums, len(SEEN["rewards"]) > 4],
        "reported by Own": sorted(keys & set(own)),
        "reported by Watched": sorted(keys & set(watched)),
        "reported": sorted(keys & set(plain)),
        "like": bool(abs(plain["qf_mean"]) < 2 and plain["qf_min"] <= plain["qf_mean"] <= plain["qf_max"]),
        "order of calls": list(CALLS),
    }


class LooksAtPPO(PPOTorchLearner):
    @override(PPOTorchLearner)
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        count("compute_loss_for_module")
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


def columns_of_ppo():
    """A loss that looks at all columns of its batch."""
    [result] = learned(ppo(rows=40, minibatch=40, epochs=1, learner_class=LooksAtPPO))
    losses = {*("policy_loss", "vf_loss", "vf_loss_unclipped"), *("entropy", "mean_kl_loss", "total_loss")}
    return {
        **SEEN,
        "share_of_ends": round(float(result["share_of_ends"]), 6),
        "results": sorted((losses | {"vf_explained_var"}) & set(result)),
        "gradients": "gradients_default_optimizer_global_norm" in result,
        "order of calls": list(CALLS),
    }


class Looks:
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        name = type(self).__name__
        count(f"compute_loss_for_module of {name}")
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


def learner_of_impala():
    """IMPALA's and APPO's, with terms of their own."""
    found = {}
    for kind, learner in ((IMPALAConfig, OfIMPALA), (APPOConfig, OfAPPO)):
        config = dqn(steps=80, kind=kind, train_batch_size_per_learner=40, learner_class=learner)
        algo = config.env_runners(rollout_fragment_length=10).learners(num_learners=0).build_algo()
        result = {}
        for _ in range(12):
            result |= algo.train()["learners"].get("default_policy", {})
            if "size_of_logits" in result:
                break
        algo.stop()
        name = learner.__name__
        found[name] = [sorted({"size_of_logits", "vf_loss", "entropy"} & set(result)), SEEN[name]]
    return {**found, "order of calls": list(CALLS)}


class WatchedSAC(SACTorchLearner):
    def build(self):
        super().build()
        count("build")
        SEEN["optimizers"] = sorted(name for name, _ in self.get_optimizers_for_module("default_policy"))

    def before_gradient_based_update(self, *, timesteps):
        super().before_gradient_based_update(timesteps=timesteps)
        count("before_gradient_based_update")

    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        count("compute_loss_for_module")
        wanted = ("obs", "new_obs", "actions", "rewards", "terminateds", "weights", "n_step")
        SEEN["columns"] = {name: list(batch[name].shape[1:]) for name in wanted if name in batch}
        loss = super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)
        SEEN["loss"] = loss.numel() == 1
        self.metrics.log_value((module_id, "mean_reward"), batch["rewards"].mean().item(), window=1)
        return loss

    def after_gradient_based_update(self, *, timesteps):
        super().after_gradient_based_update(timesteps=timesteps)
        count("after_gradient_based_update")


def learner_of_sac():
    """A loss beside RLlib's, and its optimizers."""
    config = dqn(
        "Pendulum-v1",
        steps=60,
        kind=SACConfig,
        model={"fcnet_hiddens": [8], "head_fcnet_hiddens": []},
        train_batch_size_per_learner=16,
        num_steps_sampled_before_learning_starts=30,
        actor_lr=1e-3,
        critic_lr=2e-3,
        alpha_lr=3e-3,
        learner_class=WatchedSAC,
        replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 500},
    )
    [result] = learned(config.env_runners(rollout_fragment_length=1))
    keys = {
        *("policy_loss", "qf_loss", "alpha_loss", "alpha_value", "log_alpha_value", "target_entropy"),
        *("qf_mean", "qf_max", "qf_min", "td_error_mean", "mean_reward", "qf_twin_loss"),
    }
    return {
        **SEEN,
        "reported": sorted(keys & set(result)),
        "rates": rates(result),
        "target_entropy": round(float(result["target_entropy"]), 4),
        "order of calls": list(CALLS),
    }


def rates(result):
    """The learning rates by the names of their optimizers."""
    return {k: round(float(v), 6) for k, v in sorted(result.items()) if k.endswith("_learning_rate")}


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


class PlainDQN(DQNTorchLearner):
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


def own_losses():
    """A further term in PPO's loss, two optimizers, gradients looked at; and a loss of DQN's."""
    config = ppo(
        model={"fcnet_hiddens": [8], "vf_share_layers": False},
        lr=[[0, 0.001], [120, 0.002]],
        grad_clip=0.5,
        learner_class=Regularised,
        learner_config_dict={"weight": 0.02, "rate_of_values": 0.004},
    )
    with trained(config.learners(num_learners=0), 2) as (algo, results):
        own = type(algo.learner_group._learner).__name__
    config = dqn(
        steps=20,
        train_batch_size_per_learner=8,
        num_steps_sampled_before_learning_starts=10,
        learner_class=PlainDQN,
        double_q=False,
        replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 100},
    )
    [of_dqn] = learned(config.learners(num_learners=0))
    return {
        **SEEN,
        "logged": ["mean_weight" in result["learners"]["default_policy"] for result in results],
        "learner": own,
        "logged by DQN": "size_of_errors" in of_dqn,
    }


class Apart(PPOTorchLearner):
    @override(TorchLearner)
    def configure_optimizers_for_module(self, module_id, config):
        count("configure_optimizers_for_module")
        module = self.module[module_id]
        assert isinstance(module.unwrapped(), ValueFunctionAPI)
        assert not config.model_config["vf_share_layers"]
        values = [p for name, p in module.named_parameters() if name.startswith(("vf", "encoder.critic_encoder"))]
        policy = [p for name, p in module.named_parameters() if not name.startswith(("vf", "encoder.critic_encoder"))]
        for name, params, rate in (
            ("optim_for_pi", policy, config.lr),
            ("optim_for_vf", values, config.learner_config_dict["lr_vf"]),
        ):
            optimizer = torch.optim.Adam(params=params) if name == "optim_for_pi" else torch.optim.SGD(params, lr=0.5)
            self.register_optimizer(
                module_id=module_id, optimizer_name=name, optimizer=optimizer, params=params, lr_or_lr_schedule=rate
            )


def two_optimizers():
    """One for state values by itself: both are among the results, and in the learner's state."""
    config = ppo(
        rows=40,
        minibatch=20,
        epochs=1,
        model={"vf_share_layers": False, "fcnet_hiddens": [8]},
        lr=[[0, 0.001], [80, 0.003]],
        learner_class=Apart,
        learner_config_dict={"lr_vf": 0.02},
    )
    with trained(config, 2) as (algo, results):
        learner, names = algo.learner_group._learner, ("optim_for_pi", "optim_for_vf")
        return {
            "rates": [rates(one["learners"]["default_policy"]) for one in results],
            "state": sorted(algo.learner_group.get_state()["learner"]["optimizer"]),
            "of module": sorted(name for name, _ in learner.get_optimizers_for_module("default_policy")),
            "kinds": [type(learner.get_optimizer("default_policy", name)).__name__ for name in names],
            "order of calls": list(CALLS),
        }


class Halved(torch.optim.lr_scheduler.LRScheduler):
    def get_lr(self):
        count("get_lr")
        return [group["initial_lr"] * 0.5**self.last_epoch for group in self.optimizer.param_groups]


def schedulers_of_torch():
    """Learning rates by torch's schedulers, and by ones of a program's own."""
    halving = partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.5)
    constant = partial(torch.optim.lr_scheduler.ConstantLR, factor=0.5, total_iters=2)
    found = {}
    for name, minibatch, epochs, kinds in (("torch's", 20, 2, [halving]), ("both", 40, 1, [Halved, constant])):
        config = ppo(rows=40, minibatch=minibatch, epochs=epochs, lr=0.016)
        results = learned(config.experimental(_torch_lr_scheduler_classes=kinds), 3)
        found[name] = [round(float(result["default_optimizer_learning_rate"]), 8) for result in results]
    config = ppo(lr=[[0, 0.1], [10, 0.2]]).experimental(_torch_lr_scheduler_classes=[Halved])
    return {**found, "points beside them": refusal(config.build_algo), "order of calls": list(CALLS)}
