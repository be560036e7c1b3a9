"""Where jobs are measured: a live GPU or its replay."""
