"""Hindsight experience replay: a reward that is almost never met, with relabelled goals and without."""

from polyak import DQN, HerReplayBuffer, evaluate
from polyak.envs import BitFlippingEnv
from polyak.experience import ReplayBuffer


def main(steps: int = 20_000, bits: int = 10) -> dict[str, float]:
    """Shares of goals that are reached: the state must become the goal, by one bit flipped in each step."""
    shares = {}
    for name, options in {
        "plain replay": {"replay_buffer_class": ReplayBuffer},
        "hindsight": {
            "replay_buffer_class": HerReplayBuffer,
            "replay_buffer_kwargs": {"n_sampled_goal": 4, "goal_selection_strategy": "future"},
        },
    }.items():
        env = BitFlippingEnv(n_bits=bits, max_steps=bits)
        model = DQN(
            "MultiInputPolicy",
            env,
            learning_rate=1e-3,
            learning_starts=500,
            exploration_fraction=0.5,
            target_update_interval=500,
            policy_kwargs={"net_arch": [128, 128]},
            seed=0,
            **options,
        ).learn(steps)
        shares[name] = evaluate(model, env, n_episodes=50, seed=1).success_rate
        print(f"{name}: {shares[name]:.0%} of the goals reached")
    return shares


if __name__ == "__main__":
    main()
