"""Modules of a program's own: distributions, forward passes, exploration, masks and target networks."""

import copy

import gymnasium as gym
import numpy as np
import torch
from games import CALLS, SEEN, TAKEN, Doors, Echo, count, dqn, evaluated, learned, learns, ppo, shapes, trained
from ray.rllib.algorithms.dqn.torch.default_dqn_torch_rl_module import DefaultDQNTorchRLModule
from ray.rllib.algorithms.ppo.ppo_catalog import PPOCatalog
from ray.rllib.algorithms.ppo.torch.default_ppo_torch_rl_module import DefaultPPOTorchRLModule
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.algorithms.ppo.torch.ppo_torch_rl_module import PPOTorchRLModule
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import QNetAPI, TargetNetworkAPI, ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModule, RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.models.torch.torch_distributions import TorchDistribution
from ray.rllib.utils.annotations import override
from ray.rllib.utils.torch_utils import FLOAT_MIN
from torch import nn


class Laplace(TorchDistribution):
    """Heavier tails than a Gaussian's, of one width."""

    def _get_torch_distribution(self, logits):
        count("_get_torch_distribution")
        return torch.distributions.Laplace(logits, torch.full_like(logits, 0.5))

    @classmethod
    def from_logits(cls, logits, **kwargs):
        return cls(logits=logits)

    @staticmethod
    def required_input_dim(space, **kwargs):
        return space.shape[0]

    def logp(self, value, **kwargs):
        count("logp")
        return self._dist.log_prob(value).sum(-1)

    def entropy(self, **kwargs):
        count("entropy")
        return self._dist.entropy().sum(-1)

    def kl(self, other, **kwargs):
        count("kl")
        return torch.distributions.kl_divergence(self._dist, other._dist).sum(-1)

    def to_deterministic(self):
        raise AssertionError("nothing is evaluated here")


class SmallPolicy(TorchRLModule, ValueFunctionAPI):
    def setup(self):
        count("setup")
        width = self.model_config["width"]
        self.body = nn.Sequential(nn.Linear(self.observation_space.shape[0], width), nn.Tanh())
        self.mean, self.value = nn.Linear(width, self.action_space.shape[0]), nn.Linear(width, 1)
        self.action_dist_cls = Laplace

    def _forward(self, batch, **kwargs):
        count("_forward")
        features = self.body(batch[Columns.OBS])
        return {Columns.ACTION_DIST_INPUTS: self.mean(features)}

    def _forward_train(self, batch, **kwargs):
        count("_forward_train")
        features = self.body(batch[Columns.OBS])
        return {Columns.ACTION_DIST_INPUTS: self.mean(features), Columns.EMBEDDINGS: features}

    def compute_values(self, batch, embeddings=None):
        count("compute_values with embeddings" if embeddings is not None else "compute_values")
        features = self.body(batch[Columns.OBS]) if embeddings is None else embeddings
        return self.value(features).squeeze(-1)


def own_module():
    """Without a catalog, for continuous actions, with a distribution of its own."""
    spec = RLModuleSpec(module_class=SmallPolicy, model_config={"width": 6})
    with trained(ppo("Pendulum-v1", epochs=1, spec=spec, use_kl_loss=True)) as (algo, results):
        entropy = float(torch.distributions.Laplace(0.0, 0.5).entropy())
        given = results[0]["learners"]["default_policy"]["entropy"]
        return {"shapes": shapes(learns(algo)), "entropy": abs(given - entropy) < 1e-4}


class ActionValues(TorchRLModule, QNetAPI, TargetNetworkAPI):
    def setup(self):
        self.net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, int(self.action_space.n)))

    def make_target_networks(self):
        count("make_target_networks")
        self.lagging = copy.deepcopy(self.net).requires_grad_(False)

    def get_target_network_pairs(self):
        count("get_target_network_pairs")
        return [(self.net, self.lagging)]

    def forward_target(self, batch):
        count("forward_target")
        return {"qf_preds": self.lagging(batch[Columns.OBS])}

    def compute_q_values(self, batch):
        return {"qf_preds": self.net(batch[Columns.OBS])}

    def compute_advantage_distribution(self, batch):
        raise AssertionError("there are no atoms")

    def _forward_inference(self, batch, **kwargs):
        count("_forward_inference")
        return {Columns.ACTIONS: self.net(batch[Columns.OBS]).argmax(-1)}

    def _forward_exploration(self, batch, **kwargs):
        count("_forward_exploration")
        rows = len(batch[Columns.OBS])
        return {Columns.ACTIONS: torch.randint(0, 2, (rows,))}

    def _forward_train(self, batch, **kwargs):
        count("_forward_train")
        now, then = self.net(batch[Columns.OBS]), self.net(batch[Columns.NEXT_OBS])
        with torch.no_grad():
            lagging = self.forward_target({Columns.OBS: batch[Columns.NEXT_OBS]})["qf_preds"]
        return {"qf_preds": now, "qf_next_preds": then, "qf_target_next_preds": lagging}


def own_q_module():
    """Action values without a catalog, with target networks, exploration and losses' values of its own."""
    config = dqn(
        steps=600,
        spec=RLModuleSpec(module_class=ActionValues),
        num_steps_sampled_before_learning_starts=50,
        train_batch_size_per_learner=16,
        target_network_update_freq=40,
        lr=0.01,
        gamma=0.5,
    )
    with trained(config) as (algo, _), torch.no_grad():
        values, lagging = (net(torch.zeros(1, 4))[0] for net in (learns(algo).net, learns(algo).lagging))
    return {
        "never explored": TAKEN["training"][2],
        "explored": [n > 150 for n in TAKEN["training"][:2]],
        "better": bool(values[1] > values[0] + 0.3),
        "follows": bool((lagging - values).abs().max() < 0.3),
    }


class Masking(RLModule):
    @override(RLModule)
    def __init__(
        self,
        *,
        observation_space=None,
        action_space=None,
        inference_only=None,
        learner_only=False,
        model_config=None,
        catalog_class=None,
        **kwargs,
    ):
        if not isinstance(observation_space, gym.spaces.Dict):
            raise ValueError("observations must be a Dict of 'action_mask' and 'observations'")
        self.whole_space = observation_space
        self.observation_space = observation_space["observations"]
        super().__init__(
            observation_space=self.observation_space,
            action_space=action_space,
            inference_only=inference_only,
            learner_only=learner_only,
            model_config=model_config,
            catalog_class=catalog_class,
            **kwargs,
        )


class MaskingTorch(Masking, PPOTorchRLModule):
    @override(PPOTorchRLModule)
    def setup(self):
        super().setup()
        count("setup")
        SEEN["space of the encoder"] = list(self.observation_space.shape)
        self.observation_space = self.whole_space

    @override(PPOTorchRLModule)
    def _forward_inference(self, batch, **kwargs):
        count("_forward_inference")
        mask, batch = self._apart(batch)
        return self._masked(super()._forward_inference(batch, **kwargs), mask)

    @override(PPOTorchRLModule)
    def _forward_exploration(self, batch, **kwargs):
        count("_forward_exploration")
        mask, batch = self._apart(batch)
        return self._masked(super()._forward_exploration(batch, **kwargs), mask)

    @override(PPOTorchRLModule)
    def _forward_train(self, batch, **kwargs):
        count("_forward_train")
        SEEN["in training"] = sorted({"action_mask", "obs"} & set(batch))
        SEEN["observations in training"] = type(batch[Columns.OBS]).__name__, list(batch[Columns.OBS].shape)
        return self._masked(super()._forward_train(batch, **kwargs), batch["action_mask"])

    @override(ValueFunctionAPI)
    def compute_values(self, batch, embeddings=None):
        count("compute_values with embeddings" if embeddings is not None else "compute_values")
        if isinstance(batch[Columns.OBS], dict):
            mask, batch = self._apart(batch)
            batch["action_mask"] = mask
        return super().compute_values(batch, embeddings)

    def _apart(self, batch):
        SEEN["parts"] = sorted(batch[Columns.OBS])
        mask = batch[Columns.OBS].pop("action_mask")
        batch[Columns.OBS] = batch[Columns.OBS].pop("observations")
        return mask, batch

    def _masked(self, outputs, mask):
        outputs[Columns.ACTION_DIST_INPUTS] += torch.clamp(torch.log(mask), min=FLOAT_MIN)
        return outputs


def masked_actions():
    """One that reads which actions there are from its observations, and chooses among these."""
    options = {"head_fcnet_hiddens": [8, 8], "head_fcnet_activation": "relu"}
    config = ppo(Doors, spec=RLModuleSpec(module_class=MaskingTorch, model_config=options))
    config.evaluation(
        evaluation_interval=1,
        evaluation_num_env_runners=0,
        evaluation_duration=2,
        evaluation_force_reset_envs_before_iteration=True,
    )
    algo = config.build_algo()
    before = algo.get_module().get_state()["pi.net.mlp.0.weight"].copy()
    result = algo.train()
    module = algo.get_module()
    batch = {"obs": {"action_mask": torch.tensor([[0.0, 1.0, 0.0]]), "observations": torch.zeros(1, 4)}}
    found = {
        **SEEN,
        "the only one": int(module.forward_inference(batch)["action_dist_inputs"].argmax()),
        "space of the module": sorted(module.observation_space.spaces),
        "learned": bool((before != module.get_state()["pi.net.mlp.0.weight"]).any()),
        "all doors": [n > 0 for n in TAKEN["training"]],
        "evaluated": result["evaluation"]["env_runners"]["num_episodes"] >= 2,
        "order of calls": list(CALLS),
    }
    algo.stop()
    return found


class Among(TorchRLModule, QNetAPI, TargetNetworkAPI):
    def setup(self):
        count("setup")
        SEEN["space"] = sorted(self.observation_space.spaces)
        self.net = nn.Linear(self.observation_space["observations"].shape[0], int(self.action_space.n))

    def make_target_networks(self):
        self.lagging = nn.Linear(self.net.in_features, self.net.out_features).requires_grad_(False)
        self.lagging.load_state_dict(self.net.state_dict())

    def get_target_network_pairs(self):
        return [(self.net, self.lagging)]

    def _values(self, net, observations):
        shut = observations["action_mask"] == 0
        return net(observations["observations"]).masked_fill(shut, -1000.0)

    def compute_q_values(self, batch):
        return {"qf_preds": self._values(self.net, batch[Columns.OBS])}

    def compute_advantage_distribution(self, batch):
        raise AssertionError("there are no atoms")

    def forward_target(self, batch):
        return {"qf_preds": self._values(self.lagging, batch[Columns.OBS])}

    def _forward_inference(self, batch, **kwargs):
        count("_forward_inference")
        return {Columns.ACTIONS: self.compute_q_values(batch)["qf_preds"].argmax(-1)}

    def _forward_exploration(self, batch, **kwargs):
        count("_forward_exploration")
        return {Columns.ACTIONS: torch.multinomial(batch[Columns.OBS]["action_mask"], 1).squeeze(-1)}

    def _forward_train(self, batch, **kwargs):
        count("_forward_train")
        then = {Columns.OBS: batch[Columns.NEXT_OBS]}
        return {
            "qf_preds": self._values(self.net, batch[Columns.OBS]),
            "qf_next_preds": self._values(self.net, then[Columns.OBS]),
            "qf_target_next_preds": self.forward_target(then)["qf_preds"],
        }


def masked_values():
    """DQN by one that explores among the actions that there are, and values others low."""
    config = dqn(
        Doors,
        steps=400,
        spec=RLModuleSpec(module_class=Among),
        num_steps_sampled_before_learning_starts=30,
        train_batch_size_per_learner=16,
        gamma=0.5,
        lr=0.05,
    )
    with trained(config.evaluation(evaluation_interval=1, evaluation_duration=3)) as (_, [result]):
        return {
            **SEEN,
            "all doors": [n > 50 for n in TAKEN["training"]],
            "finite": bool(abs(result["learners"]["default_policy"]["qf_mean"]) < 50),
            "greedy": bool(result["evaluation"]["env_runners"]["episode_return_mean"] > 4),
            "order of calls": list(CALLS),
        }


class Careful(PPOTorchRLModule):
    def _forward_exploration(self, batch, **kwargs):
        count("_forward_exploration")
        SEEN["explored"] = SEEN.get("explored", 0) + len(batch[Columns.OBS])
        outputs = super()._forward_exploration(batch, **kwargs)
        outputs[Columns.ACTION_DIST_INPUTS] = outputs[Columns.ACTION_DIST_INPUTS] - torch.tensor([0.0, 0.0, 1e6])
        return outputs

    def _forward_inference(self, batch, **kwargs):
        count("_forward_inference")
        SEEN["inferred"] = SEEN.get("inferred", 0) + len(batch[Columns.OBS])
        outputs = super()._forward_inference(batch, **kwargs)
        outputs[Columns.ACTION_DIST_INPUTS] = outputs[Columns.ACTION_DIST_INPUTS] + torch.tensor([0.0, 0.0, 1e6])
        return outputs

    def _forward_train(self, batch, **kwargs):
        count("_forward_train")
        return super()._forward_train(batch, **kwargs)

    def compute_values(self, batch, embeddings=None):
        count("compute_values")
        return super().compute_values(batch, embeddings)


def own_forward_passes():
    """A forward pass for each of three purposes."""
    spec = RLModuleSpec(module_class=Careful)
    config = evaluated(ppo(rows=100, minibatch=50, spec=spec, model={"fcnet_hiddens": [8]}))
    with trained(config) as (_, [result]):
        training, evaluation = TAKEN["training"], TAKEN["evaluation"]
        return {
            "forbidden in training": training[2],
            "others in training": training[0] > 10 and training[1] > 10,
            "evaluation chooses": [n > 0 for n in evaluation],
            "evaluation's return": result["evaluation"]["env_runners"]["episode_return_mean"],
            "training steps": sum(training),
            "enough rows explored": SEEN["explored"] >= 100,
            "enough rows inferred": SEEN["inferred"] >= 50,
        }


class Stubborn(DefaultDQNTorchRLModule):
    def _forward_exploration(self, batch, t):
        count("_forward_exploration")
        return {Columns.ACTIONS: torch.zeros(len(batch[Columns.OBS]), dtype=torch.int64)}

    def _forward_inference(self, batch):
        count("_forward_inference")
        return {Columns.ACTIONS: torch.full((len(batch[Columns.OBS]),), 2)}

    def _forward_train(self, batch):
        count("_forward_train")
        outputs = super()._forward_train(batch)
        return outputs


def own_exploration_of_dqn():
    """One that explores by itself, and chooses otherwise without exploration."""
    spec, starts = RLModuleSpec(module_class=Stubborn), {"num_steps_sampled_before_learning_starts": 50}
    learned(evaluated(dqn(spec=spec, model={"fcnet_hiddens": [8]}, train_batch_size_per_learner=8, **starts)))
    return {name: [n > 0 for n in TAKEN[name]] for name in ("training", "evaluation")}


class NeverTwo(DefaultDQNTorchRLModule):
    def _forward_exploration(self, batch, t):
        count("_forward_exploration")
        outputs = super()._forward_exploration(batch, t)
        SEEN.setdefault("epsilons", []).append((t, self.epsilon_schedule.get_current_value()))
        actions = outputs[Columns.ACTIONS]
        return {**outputs, Columns.ACTIONS: torch.where(actions == 2, torch.zeros_like(actions), actions)}


def further_exploration_of_dqn():
    """One that adds to the exploration of the default one, and asks how often it takes random actions."""
    config = dqn(
        steps=300,
        spec=RLModuleSpec(module_class=NeverTwo),
        model={"fcnet_hiddens": [8]},
        num_steps_sampled_before_learning_starts=1000,
        epsilon=[[0, 1.0], [200, 1.0], [400, 0.5]],
    )
    with trained(config):
        zero, one, two = TAKEN["training"]
    return {
        "twice as many zeros": 1.3 < zero / one < 3.0,
        "twos": two,
        "at first": SEEN["epsilons"][0][1],
        "as planned": all(abs(e - min(1.0, 1.5 - t / 400)) < 1e-6 for t, e in SEEN["epsilons"]),
    }


class Remembers(TorchRLModule, ValueFunctionAPI):
    def setup(self):
        count("setup")
        self._cells = self.model_config.get("lstm_cell_size", 256)
        self._lstm = nn.LSTM(self.observation_space.shape[0], self._cells, batch_first=True)
        self._pi_head = nn.Linear(self._cells, int(self.action_space.n))
        self._values = nn.Linear(self._cells, 1)

    def get_initial_state(self):
        return {name: np.zeros((self._cells,), np.float32) for name in ("h", "c")}

    def _forward(self, batch, **kwargs):
        count("_forward")
        SEEN["acting on"] = [batch[Columns.OBS].ndim, batch[Columns.OBS].shape[1], batch[Columns.STATE_IN]["h"].ndim]
        embeddings, state = self._recall(batch)
        return {Columns.ACTION_DIST_INPUTS: self._pi_head(embeddings), Columns.STATE_OUT: state}

    def _forward_train(self, batch, **kwargs):
        count("_forward_train")
        SEEN["training on"] = [list(batch[Columns.OBS].shape[1:]), list(batch[Columns.STATE_IN]["c"].shape[1:])]
        embeddings, state = self._recall(batch)
        logits = self._pi_head(embeddings)
        return {Columns.ACTION_DIST_INPUTS: logits, Columns.STATE_OUT: state, Columns.EMBEDDINGS: embeddings}

    def compute_values(self, batch, embeddings=None):
        count("compute_values with embeddings" if embeddings is not None else "compute_values")
        if embeddings is None:
            embeddings, _ = self._recall(batch)
        return self._values(embeddings).squeeze(-1)

    def _recall(self, batch):
        state = batch[Columns.STATE_IN]
        given = state["h"].unsqueeze(0), state["c"].unsqueeze(0)
        embeddings, (h, c) = self._lstm(batch[Columns.OBS], given)
        return embeddings, {"h": h.squeeze(0), "c": c.squeeze(0)}


def own_memory():
    """A state that passes from step to step, and through sequences in training."""
    spec = RLModuleSpec(module_class=Remembers, model_config={"lstm_cell_size": 16, "max_seq_len": 4})
    config = ppo(Echo, rows=400, minibatch=100, epochs=8, spec=spec, lr=0.01, gamma=0.9).debugging(seed=1)
    with trained(config.env_runners(num_envs_per_env_runner=2), 12) as (algo, results):
        module = algo.get_module()
        state = {name: torch.from_numpy(value).unsqueeze(0) for name, value in module.get_initial_state().items()}
        outputs = module.forward_inference({Columns.OBS: torch.zeros(1, 1, 3), Columns.STATE_IN: state})
        return {
            **SEEN,
            "names": shapes(module),
            "stateful": bool(module.is_stateful()),
            "outputs": {name: list(value.shape) for name, value in outputs["state_out"].items()},
            "remembers": bool(results[-1]["env_runners"]["episode_return_mean"] > 0.85),
            "order of calls": list(CALLS),
        }


class Averages(TorchRLModule, ValueFunctionAPI):
    def setup(self):
        count("setup")
        self.head, self.value = nn.Linear(8, 3), nn.Linear(8, 1)

    def get_initial_state(self):
        return {"seen": {"mean": np.zeros((4,), np.float32)}, "count": np.zeros((1,), np.float32)}

    def _read(self, batch):
        state = batch[Columns.STATE_IN]
        mean, count = state["seen"]["mean"], state["count"]
        rows = []
        for step in batch[Columns.OBS].unbind(1):
            count = count + 1
            mean = mean + (step - mean) / count
            rows.append(torch.cat([step, mean], -1))
        return torch.stack(rows, 1), {"seen": {"mean": mean}, "count": count}

    def _forward(self, batch, **kwargs):
        features, state = self._read(batch)
        return {Columns.ACTION_DIST_INPUTS: self.head(features), Columns.STATE_OUT: state}

    def _forward_exploration(self, batch, **kwargs):
        count("_forward_exploration")
        SEEN["counts"] |= set(batch[Columns.STATE_IN]["count"].flatten().tolist())
        with torch.no_grad():
            return self._forward(batch, **kwargs)

    def _forward_train(self, batch, **kwargs):
        count("_forward_train")
        SEEN["training on"] = list(batch[Columns.OBS].shape[1:])
        SEEN["first in training"] |= set(batch[Columns.STATE_IN]["count"].flatten().tolist())
        return self._forward(batch, **kwargs)

    def compute_values(self, batch, embeddings=None):
        count("compute_values")
        return self.value(self._read(batch)[0]).squeeze(-1)


def own_averages():
    """A state that is no layer's: a running mean of what was seen, and how often, in nested dicts."""
    SEEN.update({"counts": set(), "first in training": set()})
    spec = RLModuleSpec(module_class=Averages, model_config={"max_seq_len": 5})
    [result] = learned(ppo(minibatch=60, spec=spec))
    return {
        "counts": sorted(SEEN["counts"] - {10.0}),
        "first in training": sorted(SEEN["first in training"]),
        "training on": SEEN["training on"],
        "results": sorted({"policy_loss", "vf_loss", "entropy", "mean_kl_loss"} & set(result)),
        "order of calls": list(CALLS),
    }


class Cooled(DefaultPPOTorchRLModule):
    def _forward(self, batch, **kwargs):
        count("_forward")
        outputs = super()._forward(batch, **kwargs)
        outputs[Columns.ACTION_DIST_INPUTS] = 0.5 * outputs[Columns.ACTION_DIST_INPUTS]
        SEEN["acted by"] = sorted(outputs)
        return outputs

    def _forward_train(self, batch, **kwargs):
        count("_forward_train")
        outputs = super()._forward_train(batch, **kwargs)
        outputs[Columns.ACTION_DIST_INPUTS] = 0.5 * outputs[Columns.ACTION_DIST_INPUTS]
        SEEN["learned by"] = sorted(outputs)
        return outputs


class Looks(PPOTorchLearner):
    def compute_loss_for_module(self, *, module_id, config, batch, fwd_out):
        count("compute_loss_for_module")
        SEEN["sequences"] = {name: batch[name].ndim for name in ("obs", "actions", "advantages", "loss_mask")}
        SEEN["steps"] = batch["obs"].shape[1]
        SEEN["states"] = sorted(batch[Columns.STATE_IN])
        padding = batch["obs"][~batch["loss_mask"]]
        SEEN["some are none"] = len(padding) > 0
        return super().compute_loss_for_module(module_id=module_id, config=config, batch=batch, fwd_out=fwd_out)


def own_forward_with_memory():
    """RLlib's module with its LSTM and forward passes of a program's own, and a learner that looks at batches."""
    options = {"use_lstm": True, "lstm_cell_size": 6, "max_seq_len": 4, "fcnet_hiddens": [8]}
    found = {}
    for name, shared in (("shared", True), ("apart", False)):
        model = {**options, "vf_share_layers": shared}
        spec = RLModuleSpec(module_class=Cooled, catalog_class=PPOCatalog, model_config=model)
        algo = ppo(Echo, minibatch=40, spec=spec, learner_class=Looks).build_algo()
        before = {key: value.copy() for key, value in algo.get_module().get_state().items()}
        result = algo.train()["learners"]["default_policy"]
        after = learns(algo).get_state()
        algo.stop()
        cells = sorted(key for key in before if key.endswith("lstm.weight_hh_l0"))
        found[name] = {
            **SEEN,
            "moved": [key for key in cells if (before[key] != after[key]).any()],
            "results": sorted({"policy_loss", "vf_loss", "entropy"} & set(result)),
        }
    return {**found, "order of calls": list(CALLS)}
