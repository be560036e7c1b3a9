"""Kubernetes: admission of pods that share a GPU, who meets whom, and what runs on the nodes."""
