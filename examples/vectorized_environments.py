"""Many environments at once, four ways: in this process, in workers, in compiled code, and as tensors."""

from time import perf_counter

from polyak import PPO, DummyVecEnv, SubprocVecEnv, make_vec_env
from polyak.envs import make_native_vec_env
from polyak.envs.tensor import TensorCartPole


def main(steps: int = 100_000) -> dict[str, float]:
    """Environment steps per second of whole trainings."""
    makers = {
        "in this process": lambda: make_vec_env("CartPole-v1", n_envs=8, seed=0, vec_env_cls=DummyVecEnv),
        "in worker processes": lambda: make_vec_env("CartPole-v1", n_envs=8, seed=0, vec_env_cls=SubprocVecEnv),
        "in compiled code": lambda: make_native_vec_env("CartPole-v1", n_envs=64, seed=0),
        "in tensors": lambda: TensorCartPole(256, device="cpu"),  # or "cuda": experience never leaves the GPU
    }
    speeds = {}
    for name, make in makers.items():
        envs = make()
        model = PPO("MlpPolicy", envs, n_steps=32, batch_size=256, n_epochs=4, device="cpu", seed=0)
        begin = perf_counter()
        model.learn(steps)
        speeds[name] = model.num_timesteps / (perf_counter() - begin)
        model.env.close()
        print(f"{name:20} {speeds[name]:8.0f} steps a second")
    return speeds


if __name__ == "__main__":  # workers import this file, and must not start workers of their own
    main()
