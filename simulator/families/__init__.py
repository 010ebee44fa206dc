"""One small adapter per model family: config.json fields in, an `Architecture` out."""
