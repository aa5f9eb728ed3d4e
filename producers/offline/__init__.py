"""Offline jobs: many queries of low priority, from a file into a file (INFaaS, sections 3.2 and 6.3.2)."""
