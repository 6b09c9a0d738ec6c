"""Training services, their machines and GPUs, and the forms that change them."""
