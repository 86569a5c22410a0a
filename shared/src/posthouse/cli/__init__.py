"""The command ``posthouse``. Commands import what they need when they run."""
