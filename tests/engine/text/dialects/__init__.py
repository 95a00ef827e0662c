"""Tests of the chat formats."""
