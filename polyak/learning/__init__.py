"""What learns: learners, those that learn as one, and the engine that runs their gradient steps as programs."""
