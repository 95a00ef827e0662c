"""Tests of the Discover tab and of models on their way."""
