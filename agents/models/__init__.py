"""Models as stages run them: loaded by name, checked, executed off the event loop, or emulated."""
