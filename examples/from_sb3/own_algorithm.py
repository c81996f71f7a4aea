"""An algorithm of one's own, with networks, an optimizer and a tensor besides its policy, is saved and resumed."""

import argparse
from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.dqn.policies import DQNPolicy
from torch import Tensor, nn
from torch.nn import functional as F


class Curious(OffPolicyAlgorithm):
    """Double DQN that rewards itself for what it cannot predict yet (random network distillation).

    Args:
        policy: ``"MlpPolicy"`` or a policy class.
        env: the environment.
        learning_rate: step size of both optimizers.
        bonus: weight of the reward for surprise.
        width: of the networks that measure it.
    """

    policy_aliases = {"MlpPolicy": DQNPolicy}

    def __init__(
        self,
        policy: Any,
        env: Any,
        learning_rate: float = 1e-3,
        bonus: float = 0.1,
        width: int = 16,
        policy_kwargs: dict[str, Any] | None = None,
        seed: int | None = None,
        device: str = "auto",
        _init_setup_model: bool = True,
    ) -> None:
        super().__init__(
            policy,
            env,
            learning_rate,
            buffer_size=1000,
            learning_starts=50,
            batch_size=32,
            policy_kwargs=policy_kwargs,
            seed=seed,
            device=device,
            sde_support=False,
            supported_action_spaces=(spaces.Discrete,),
        )
        self.bonus, self.width = bonus, width
        if _init_setup_model:
            self._setup_model()

    def _setup_model(self) -> None:
        super()._setup_model()
        n_inputs = self.observation_space.shape[0]
        self.goal = nn.Linear(n_inputs, self.width).to(self.device)  # random, and stays so
        self.guess = nn.Sequential(nn.Linear(n_inputs, self.width), nn.Tanh(), nn.Linear(self.width, self.width))
        self.guess = self.guess.to(self.device)
        self.guess_optimizer = torch.optim.Adam(self.guess.parameters(), lr=self.lr_schedule(1))
        self.usual_surprise = torch.ones(1, device=self.device)

    def surprise(self, observations: Tensor) -> Tensor:
        """[B, 1] squared error of the guess."""
        return (self.guess(observations) - self.goal(observations).detach()).square().mean(1, keepdim=True)

    def train(self, gradient_steps: int, batch_size: int = 32) -> None:
        self.policy.set_training_mode(True)
        self._update_learning_rate([self.policy.optimizer, self.guess_optimizer])
        for _ in range(gradient_steps):
            batch = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
            surprise = self.surprise(batch.next_observations.float())
            self.usual_surprise.lerp_(surprise.detach().mean(), 0.01)
            with torch.no_grad():
                best = self.policy.q_net(batch.next_observations).argmax(1, keepdim=True)
                future = self.policy.q_net_target(batch.next_observations).gather(1, best)
                rewards = batch.rewards + self.bonus * surprise / self.usual_surprise
                target = rewards + (1 - batch.dones) * self.gamma * future
            values = self.policy.q_net(batch.observations).gather(1, batch.actions.long())
            loss = F.smooth_l1_loss(values, target) + surprise.mean()
            self.policy.optimizer.zero_grad()
            self.guess_optimizer.zero_grad()
            loss.backward()
            self.policy.optimizer.step()
            self.guess_optimizer.step()
            for ours, theirs in zip(self.policy.q_net_target.parameters(), self.policy.q_net.parameters(), strict=True):
                ours.data.lerp_(theirs.data, self.tau)
        self._n_updates += gradient_steps
        self.logger.record("train/surprise", self.usual_surprise.item())

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        """What has a state dict, and further tensors."""
        return ["policy", "policy.optimizer", "goal", "guess", "guess_optimizer"], ["usual_surprise"]

    def _excluded_save_params(self) -> list[str]:
        """What would only be saved a second time."""
        return [*super()._excluded_save_params(), "goal", "guess", "guess_optimizer", "usual_surprise"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("own_algorithm"))
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    model = Curious("MlpPolicy", "CartPole-v1", bonus=0.2, width=8, policy_kwargs={"net_arch": [32]}, seed=0)
    model.learn(options.steps)
    model.save(options.out / "curious")
    model.save_replay_buffer(options.out / "replay")

    again = Curious.load(options.out / "curious", env=model.get_env())
    again.load_replay_buffer(options.out / "replay")
    print("the same surprise:", torch.equal(again.usual_surprise, model.usual_surprise), again.width)
    again.learn(options.steps, reset_num_timesteps=False)
    print("steps in all:", again.num_timesteps)

    model.set_parameters(again.get_parameters())
    observation = model.get_env().reset()
    actions = [m.predict(observation, deterministic=True)[0].item() for m in (model, again)]
    print("they agree:", actions[0] == actions[1], "updates:", again._n_updates > model._n_updates)


if __name__ == "__main__":
    main()
