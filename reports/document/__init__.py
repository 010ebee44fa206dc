"""A report as plain values (`blocks`), and how it is written: HTML, Markdown, CSV, Parquet."""
