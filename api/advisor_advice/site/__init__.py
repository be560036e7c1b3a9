"""What is known of a site: profiles, cards, and what launches did against what is expected."""
