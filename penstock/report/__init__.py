"""The offline report: turns a store and the models into a page, without a daemon."""
