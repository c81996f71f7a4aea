"""An optimizer for the policy and another, with a rate of its own, for the value function."""

from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.utils.annotations import override
from shared import arguments, ppo, run
from torch.optim import Adam


class TwoOptimizers(PPOTorchLearner):
    @override(PPOTorchLearner)
    def configure_optimizers_for_module(self, module_id, config):
        module = self.module[module_id]
        policy = [*module.encoder.actor_encoder.parameters(), *module.pi.parameters()]
        values = [*module.encoder.critic_encoder.parameters(), *module.vf.parameters()]
        for name, parameters, rate in (
            ("optim_for_pi", policy, config.lr),
            ("optim_for_vf", values, config.learner_config_dict["lr_vf"]),
        ):
            self.register_optimizer(
                module_id=module_id,
                optimizer_name=name,
                optimizer=Adam(parameters),
                params=parameters,
                lr_or_lr_schedule=rate,
            )


parser = arguments(default_reward=450.0, default_timesteps=200000)
parser.add_argument("--lr-vf", type=float, default=0.0005)
parser.add_argument("--lr-pi", type=float, default=0.0003)

if __name__ == "__main__":
    args = parser.parse_args()
    config = ppo(
        *("CartPole-v1", 256, 128),
        learner_class=TwoOptimizers,
        learner_config_dict={"lr_vf": args.lr_vf},
        lr=args.lr_pi,
    )
    config.rl_module(model_config=DefaultModelConfig(vf_share_layers=False))
    results = run(config, args)
