"""Jobs on several GPUs: which of them share one, and of a queue when and where."""
