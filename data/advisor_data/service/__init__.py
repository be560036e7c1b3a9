"""What a service keeps next to points: tokens, launches, the audit log, copies."""
