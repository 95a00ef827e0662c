"""The words that app and engine share: messages, framing, errors, places. No torch, no Qt."""
