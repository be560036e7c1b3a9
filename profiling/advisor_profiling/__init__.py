"""Telemetry sources, the power meter and the solo sweep."""
