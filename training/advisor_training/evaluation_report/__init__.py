"""The report of an evaluation: sentences, tables, figures, pages."""
