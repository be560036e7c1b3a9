"""Models as artefacts: manifest, predictor, registry, and the model that comes with the package."""
