"""The process of the cluster: webhook and chooser behind one HTTPS port."""
