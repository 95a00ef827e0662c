"""Text to tokens and back; chat templates; reasoning and tool calls."""
