"""What takes files, time and devices: from a recipe to a trained model, and its use."""
