"""Model families: each reads config.json files of its kind into an `Architecture`.

To add one: add a `Family` to a module listed in `registry.MODULES` (or a new module), its class
defaults to defaults.json where transformers has the class, and a row to tests/data.
"""
