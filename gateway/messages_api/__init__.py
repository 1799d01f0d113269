"""The Messages API: Anthropic's form of a chat, served as the chat that it comes to."""
