"""Language models that can be had without a model hub: fetched once from a package, converted into the user's cache, known by a name."""
