"""The offline report: a store and the models, turned into a page. No daemon needed."""
