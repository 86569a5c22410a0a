"""What comes from the web, as text for the model."""
