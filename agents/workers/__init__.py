"""Model processes: the frames that they speak, the loop that they run, and how a front starts and hears them."""
