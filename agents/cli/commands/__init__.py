"""One module per command of `spillway`, imported only when it is called."""
