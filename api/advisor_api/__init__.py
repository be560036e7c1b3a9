"""The online service: recommendations, launches and profiles over HTTP."""
