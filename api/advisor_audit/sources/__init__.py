"""Where series of GPUs come from: a Prometheus, exporters, this host, or a file."""
