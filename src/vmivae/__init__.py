"""Train variational autoencoders, and say how much their codes know about the images."""
