"""The wire of Posthouse and what all its services need."""

__version__ = "0.1.0"
