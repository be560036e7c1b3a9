"""The process of the cluster: webhook, scheduler extender and chooser behind one HTTPS port."""
