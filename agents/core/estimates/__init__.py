"""What a stage expects of the stages behind it, and how it comes to know: PARD's State Planner (section 4.2)."""
