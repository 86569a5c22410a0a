"""Tests of Posthouse, by kind."""
