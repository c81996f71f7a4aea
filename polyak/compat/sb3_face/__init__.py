"""Names, files and ways to subclass of Stable-Baselines3 and sb3-contrib."""
