"""What would have become of recorded traffic under other policies and sizes; `study.study` is the way in."""
