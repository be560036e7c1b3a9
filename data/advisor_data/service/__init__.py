"""What a service keeps beside points: tokens, launches, the audit log, copies."""
