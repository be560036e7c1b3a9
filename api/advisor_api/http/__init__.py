"""Connections, heads, bodies and access: everything before a route."""
