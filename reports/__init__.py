"""What a person sees: text, tables, figures and the command line."""
