"""Power of matrix products by the data that they multiply (docs/input-power.md).

The question is that of Gregersen et al., "Input-Dependent Power Usage in GPUs" (2024).
"""
