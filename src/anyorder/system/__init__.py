"""Everything that talks to the operating system: files, signals, memory, devices and processes."""
