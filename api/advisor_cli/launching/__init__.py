"""The commands that launch pairs and look after launches."""
