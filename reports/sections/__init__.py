"""The parts of a report, a small module each: a function from cases to a `Section`, or None."""
