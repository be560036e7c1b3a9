"""Power of kernels, of components and of what matrices hold, and the sensors that read it."""
