"""What the operating system offers: processes, control groups, cores, locks."""
