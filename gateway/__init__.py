"""The OpenAI-compatible gateway: HTTP in front of the engine."""
