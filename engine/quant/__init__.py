"""Weight encodings: one file per format."""
