"""sb3-contrib's names for policies that remember, and for their rollouts."""
