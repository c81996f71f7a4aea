"""Parts of models."""
