"""The commands of `roofcast`, one module each, imported when they are called."""
