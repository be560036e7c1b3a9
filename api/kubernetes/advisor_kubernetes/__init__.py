"""Kubernetes: pods that share a GPU at an advised split (docs/kubernetes.md)."""
