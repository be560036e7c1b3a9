"""What power a matrix product draws by its data: the physical part, and how fast it runs."""
