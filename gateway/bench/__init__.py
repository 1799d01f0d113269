"""Measurements over HTTP: a server in processes of its own, clients that stream, figures from both."""
