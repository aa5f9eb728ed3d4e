"""Recordings: tapping a running pipeline into Avro container files, and reading them, torn ones too."""

from spillway.producers.recording.files import About, Recorded, Recording, RecordingWriter, read_recording

__all__ = ["About", "Recorded", "Recording", "RecordingWriter", "read_recording"]
