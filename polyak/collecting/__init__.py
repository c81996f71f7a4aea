"""From a policy and environments to rows of experience: actor, exploration, runner, rollouts."""
