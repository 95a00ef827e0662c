"""The one seam to a device."""
