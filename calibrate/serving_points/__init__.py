"""Public serving points as truth: read them, forecast them, fit the shared parameters, judge."""
