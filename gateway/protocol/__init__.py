"""OpenAI's requests and responses as strict structs."""
