"""The report of a dataset: sentences, figures, pages."""
