"""What power a matrix product draws with given data: learned from measured inputs."""
