"""PPO with an optimizer of its own for state values: both are among the results, and in the learner's state."""

import torch
from games import Calls, Counting
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.learner.torch.torch_learner import TorchLearner
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.utils.annotations import override

CALLS = Calls()


class Apart(PPOTorchLearner):
    @override(TorchLearner)
    def configure_optimizers_for_module(self, module_id, config):
        CALLS.note("configure_optimizers_for_module")
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
                module_id=module_id,
                optimizer_name=name,
                optimizer=optimizer,
                params=params,
                lr_or_lr_schedule=rate,
            )


def outcome():
    config = PPOConfig().environment(Counting).env_runners(num_env_runners=0)
    config.training(
        train_batch_size_per_learner=40,
        minibatch_size=20,
        num_epochs=1,
        lr=[[0, 0.001], [80, 0.003]],
        learner_class=Apart,
        learner_config_dict={"lr_vf": 0.02},
    )
    config.rl_module(model_config={"vf_share_layers": False, "fcnet_hiddens": [8]})
    algo = config.build_algo()
    results = [algo.train()["learners"]["default_policy"] for _ in range(2)]
    state = algo.learner_group.get_state()["learner"]["optimizer"]
    learner = algo.learner_group._learner
    equal = {
        "rates": [
            {k: round(float(v), 6) for k, v in sorted(one.items()) if k.endswith("_learning_rate")} for one in results
        ],
        "state": sorted(state),
        "of module": sorted(name for name, _ in learner.get_optimizers_for_module("default_policy")),
        "kinds": [
            type(learner.get_optimizer("default_policy", name)).__name__ for name in ("optim_for_pi", "optim_for_vf")
        ],
    }
    algo.stop()
    return {"equal": equal, "called": CALLS}
