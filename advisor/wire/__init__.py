"""What leaves and enters the process, declared once: requests and answers as frozen dataclasses.

The command line (`--json`), the service, its OpenAPI and the client use these same classes.
"""
