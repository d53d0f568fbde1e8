"""Toy data made by programs: six families of short texts, text files, and symbol tasks; one task a file."""
