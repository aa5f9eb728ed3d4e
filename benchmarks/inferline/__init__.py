"""InferLine's evaluation (chapter 4 of the thesis on Velox, Clipper and InferLine): plans, and sizes that follow."""
