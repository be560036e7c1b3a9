"""What launches did, held against what the model in use says of them, and what that changes."""
