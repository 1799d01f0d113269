"""Kernels for particular devices, behind the protocol that the model half of the engine defines."""
