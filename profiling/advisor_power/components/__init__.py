"""What a GPU's power goes to: floor, classes of SM work, fabric and memory."""
