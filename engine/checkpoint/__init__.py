"""FTW folders and safetensors folders: read, write, convert."""
