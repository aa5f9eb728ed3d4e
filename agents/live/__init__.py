"""The live driver: stage replicas as Faust apps and the transactional gate, on real topics and the wall clock."""
