"""Matrices in files: safetensors and npy, mapped into memory. Never a pickle."""
