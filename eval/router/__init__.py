"""How well a trained router chooses: `modegraph eval router`."""
