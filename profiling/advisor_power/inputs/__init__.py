"""Power of a product by what its matrices are filled with (docs/input-power.md).

The question is that of Gregersen et al., "Input-Dependent Power Usage in GPUs" (2024).
"""
