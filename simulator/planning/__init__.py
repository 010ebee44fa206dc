"""Which deployment serves a traffic within its objectives, at what cost."""
