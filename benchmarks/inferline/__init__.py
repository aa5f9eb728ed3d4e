"""InferLine's evaluation (chapter 4 of the thesis on Velox, Clipper and InferLine), in virtual time.

Hardware and durations are emulated: see examples/inferline. Hops take no time, policy is `naive`.
"""
