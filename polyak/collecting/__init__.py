"""Collection of experience with a policy: actor, exploration, runner, rollouts."""
