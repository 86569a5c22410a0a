"""HTTP in, channels, and outbound delivery."""
