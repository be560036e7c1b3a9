"""The agent of a node: owns the MPS daemon of each GPU, proves limits, meters pods, reports."""
