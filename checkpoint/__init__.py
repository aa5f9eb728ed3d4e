"""What survives a crash: which input may be forgotten, what was already taken, what may be released."""
