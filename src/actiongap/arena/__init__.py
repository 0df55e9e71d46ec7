"""The environments that deep agents meet: MinAtar on the device, and any Gymnasium environment on the host."""
