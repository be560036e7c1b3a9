"""Connections, heads, bodies and who may ask: everything before a route."""
