"""Tests of the memory pages."""
