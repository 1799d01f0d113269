"""Tools and reasoning: what of them goes into a prompt, and how they are found in what a model writes."""
