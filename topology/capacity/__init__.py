"""InferLine (chapter 4 of the thesis on Velox, Clipper and InferLine): what hardware a pipeline needs, and how much."""
