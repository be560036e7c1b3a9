"""Telemetry sources, the power meter and the solo sweep."""

SUPERVISOR = "advisor_advice.supervise"
"""The module behind each launch: `advisor.launch` gets its name from its launcher."""
