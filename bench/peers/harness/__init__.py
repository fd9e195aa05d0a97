"""Runs Ionian and its peers in turn on this machine, and measures them alike."""
