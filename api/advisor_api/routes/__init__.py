"""Routes of version 1, and the pages that ask them; no logic."""
