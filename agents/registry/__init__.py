"""The registry of models (INFaaS, section 3.2): variants are generated of a model, measured, and kept for stages."""
