"""Models behind HTTP: an interface for programs, and a studio page for people."""
