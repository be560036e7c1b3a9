"""What sharing would give a cluster, from the metrics that it scrapes already."""
