"""Kubernetes: admission of pods that share a GPU, their partners, and the agents of nodes."""
