"""Admission: what pods ask for, what is refused, and what is changed in them."""
