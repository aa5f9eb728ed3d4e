"""Values as bytes: encoding, bounded decoding, other versions' schemas, tensors."""
