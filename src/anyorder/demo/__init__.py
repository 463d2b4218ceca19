"""The demo: what runs without any data of the user."""
