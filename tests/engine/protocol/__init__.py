"""Tests of the words that app and engine share."""
