"""What the command line and the service ask, answered from the store and the model in use."""
